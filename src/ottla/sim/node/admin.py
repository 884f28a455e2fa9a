"""The administrator: creates, deletes and re-creates topics, adds partitions, changes settings, deletes records.

Rule 1: an acknowledged change is permanent; one without a response may have been made, or be made later.
Rule 2: a topic is deleted by its id, so that a late request cannot hit the next topic of the same name.
"""

from typing import Any

from ottla.rpc.errors import ClientError
from ottla.sim.node.ledger import name_of
from ottla.sim.node.readers import LATEST, offsets_request
from ottla.sim.node.scene import Line, LiveTopic, Scene
from ottla.sim.node.swarm import TopicPlan
from ottla.sim.played import Violation
from ottla.wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.api.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.errors import Error

TOPIC = 2
CHANGED = "max.compaction.lag.ms"
"""A setting without other effects in these runs; its value is a counter."""
DEFAULT = str(2**63 - 1)
PARTITIONS_MAX = 5
_TROUBLE = (Error.KAFKA_STORAGE_ERROR, Error.NOT_CONTROLLER)


class SimAdmin:
    def __init__(self, scene: Scene, name: str) -> None:
        self._scene = scene
        self._line = Line(scene, name)
        self._deleting: dict[bytes, None] = {}
        """Topics whose deletion was requested."""
        self._deleted: dict[bytes, None] = {}
        self._unanswered_creations = 0
        self._values: dict[bytes, dict[str, None]] = {}
        """The possible values of the changed setting, by topic."""
        self._changes = 0

    async def run(self) -> None:
        scene = self._scene
        fleeting = [topic.plan for topic in scene.topics.values() if topic.plan.fleeting]
        operations = [self._add_partition, self._change_setting, self._delete_records, self._look_up]
        while not scene.ending:
            try:
                if fleeting and scene.random.random() < 0.4:
                    await self._replace(scene.random.choice(fleeting))
                elif scene.topics:
                    await scene.random.choice(operations)(scene.random.choice(list(scene.topics.values())))
            except ClientError:
                await scene.pause(0.5)
            await scene.pause(1.5)
        self._line.hang_up()

    # Topics.

    async def create(self, plan: TopicPlan) -> None:
        """Create a topic; retries until it exists."""
        while plan.name not in self._scene.topics:
            try:
                await self._create(plan)
            except ClientError:
                await self._scene.pause(0.5)

    async def _create(self, plan: TopicPlan) -> None:
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in plan.settings.items()]
        topic = CreatableTopic(
            name=plan.name, num_partitions=plan.partitions, replication_factor=1, assignments=[], configs=configs
        )
        self._unanswered_creations += 1
        stops = self._scene.stops()
        [made] = (await self._line.call(CreateTopicsRequest(topics=[topic]))).topics
        error = Error(made.error_code)
        leaving = error is Error.INVALID_REPLICATION_FACTOR and stops % 2 + self._scene.stops() - stops > 0
        if error in _TROUBLE or leaving:
            await self._scene.pause(1)
            return
        self._unanswered_creations -= 1
        if error is Error.TOPIC_ALREADY_EXISTS:
            await self.look(plan)
        elif error is not Error.NONE:
            raise Violation("I21", f"topic {plan.name} was not made: {error.name}: {made.error_message}")
        else:
            self._is_there(plan, made.topic_id, plan.partitions)

    async def _replace(self, plan: TopicPlan) -> None:
        live = self._scene.topics.get(plan.name)
        if live is None:
            await self._create(plan)
            return
        self._deleting[live.topic_id] = None
        request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=live.topic_id)], timeout_ms=5_000)
        [gone] = (await self._line.call(request)).responses
        error = Error(gone.error_code)
        if error in (Error.NONE, Error.UNKNOWN_TOPIC_ID):
            self._deleted[live.topic_id] = None
            del self._scene.topics[plan.name]
        elif error not in _TROUBLE:
            raise Violation("I21", f"topic {plan.name} was not deleted: {error.name}")

    async def look(self, plan: TopicPlan) -> None:
        """Compare the node's description of a topic with the expected one."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=plan.name)], allow_auto_topic_creation=False)
        [description] = (await self._line.ask(request)).topics
        live = self._scene.topics.get(plan.name)
        if description.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION:
            if live is not None and live.topic_id not in self._deleting:
                raise Violation("I21", f"topic {plan.name} is gone, and nobody deleted it")
            self._scene.topics.pop(plan.name, None)
            return
        if description.error_code:
            raise Violation("I21", f"topic {plan.name} cannot be described: {Error(description.error_code).name}")
        if description.topic_id in self._deleted:
            raise Violation("I21", f"topic {plan.name} was deleted and is back")
        if live is None or live.topic_id != description.topic_id:
            expected = live is None or live.topic_id in self._deleting
            if not expected or not self._unanswered_creations:
                raise Violation("I21", f"topic {plan.name} is another one, which nobody made")
        elif len(description.partitions) < live.partitions:
            raise Violation(
                "I21", f"topic {plan.name} had {live.partitions} partitions, now {len(description.partitions)}"
            )
        self._is_there(plan, description.topic_id, len(description.partitions))

    def _is_there(self, plan: TopicPlan, topic_id: bytes, partitions: int) -> None:
        self._scene.topics[plan.name] = LiveTopic(plan, topic_id, partitions)
        self._scene.ledger.made(topic_id, partitions, plan)

    async def _add_partition(self, live: LiveTopic) -> None:
        if live.plan.fleeting or live.partitions >= PARTITIONS_MAX:
            return
        count = live.partitions + 1
        topic = CreatePartitionsTopic(name=live.plan.name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=5_000, validate_only=False)
        [result] = (await self._line.call(request)).results
        error = Error(result.error_code)
        if error is Error.NONE:
            self._is_there(live.plan, live.topic_id, count)
        elif error is Error.INVALID_PARTITIONS:
            await self.look(live.plan)  # An earlier request succeeded.
        elif error not in _TROUBLE:
            raise Violation("I21", f"{live.plan.name} did not get {count} partitions: {error.name}")

    # Settings.

    async def _change_setting(self, live: LiveTopic) -> None:
        if live.plan.fleeting:
            return
        self._changes += 1
        value = str(10**12 + self._changes)
        possible = self._values.setdefault(live.topic_id, {DEFAULT: None})
        possible[value] = None
        change = AlterableConfig(name=CHANGED, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name=live.plan.name, configs=[change])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        try:
            [result] = (await self._line.call(request)).responses
        except ClientError:
            possible["late"] = None  # From now on an older value may come after a newer one.
            raise
        error = Error(result.error_code)
        if error in _TROUBLE:
            possible["late"] = None
        elif error is not Error.NONE:
            raise Violation("I21", f"{CHANGED}={value} was refused: {error.name}: {result.error_message}")
        elif "late" not in possible:
            self._values[live.topic_id] = {value: None}

    async def check_setting(self, live: LiveTopic) -> None:
        possible = self._values.get(live.topic_id)
        if not possible:
            return
        resource = DescribeConfigsResource(
            resource_type=TOPIC, resource_name=live.plan.name, configuration_keys=[CHANGED]
        )
        [result] = (await self._line.ask(DescribeConfigsRequest(resources=[resource]))).results
        value = result.configs[0].value
        if value not in possible:
            raise Violation("I21", f"{live.plan.name}: {CHANGED} is {value}, it can be {list(possible)}")

    # Records.

    async def _delete_records(self, live: LiveTopic) -> None:
        if live.plan.fleeting or live.plan.kept or "delete" not in live.plan.settings["cleanup.policy"]:
            return
        key = (live.topic_id, self._scene.random.randrange(live.partitions))
        history = self._scene.ledger.partition(key)
        if not history.known or self._scene.random.random() < 0.5:
            return
        life, offset = self._scene.ledger.lives, self._scene.random.choice(sorted(history.known))
        history.start_asked = max(history.start_asked, offset)
        partition = DeleteRecordsPartition(partition_index=key[1], offset=offset)
        topic = DeleteRecordsTopic(name=live.plan.name, partitions=[partition])
        answer: Any = await self._line.call(DeleteRecordsRequest(topics=[topic], timeout_ms=5_000))
        one = answer.topics[0].partitions[0]
        if one.error_code and life == self._scene.ledger.lives and one.error_code not in _TROUBLE:
            raise Violation("I1", f"{name_of(key)}: nothing before {offset} is deleted: {Error(one.error_code).name}")
        if not one.error_code and one.low_watermark < offset:
            raise Violation("I1", f"{name_of(key)}: all before {offset} was deleted, it begins at {one.low_watermark}")

    async def _look_up(self, live: LiveTopic) -> None:
        """Check with ListOffsets that the end of a log is after every acknowledged record."""
        if live.plan.fleeting:
            return
        key = (live.topic_id, self._scene.random.randrange(live.partitions))
        life, known = self._scene.ledger.lives, max(self._scene.ledger.partition(key).known, default=-1)
        answer = await self._line.call(offsets_request(live.plan.name, key[1], LATEST))
        one = answer.topics[0].partitions[0]
        if not one.error_code and life == self._scene.ledger.lives and one.offset <= known:
            raise Violation("I14", f"{name_of(key)} ends at {one.offset}; {known} was acknowledged or read")
