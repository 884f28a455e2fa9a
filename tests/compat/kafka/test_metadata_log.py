"""The metadata log, its snapshots and the files beside it: Kafka reads ours, and we read Kafka's."""

import asyncio
import json
import re
import shutil
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from peers.broker import CLUSTER_ID, DATA, KafkaBroker
from peers.client import Client
from peers.jvm import run_tool
from peers.written import Written

from ottla.broker.controller.channel import LocalChannel
from ottla.broker.controller.controller import Controller
from ottla.broker.controller.lifecycle import BrokerIdentity, BrokerLifecycle, directory_id
from ottla.broker.controller.producer_ids import ProducerIds
from ottla.broker.controller.publisher import MetadataPublisher
from ottla.broker.controller.raft_log import RaftLog
from ottla.broker.network.backlog import Backlog, Budget
from ottla.config import Config
from ottla.core.metadata.control import Voter
from ottla.core.metadata.image import TOPIC, Image
from ottla.io.clock import SystemClock
from ottla.io.disk import LocalDisk
from ottla.storage.log_directory import LogDirectory
from ottla.wire.api.broker_registration import Listener
from ottla.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.api.delete_topics import DeleteTopicsRequest
from ottla.wire.uuids import uuid_to_text

TOOL = "org.apache.kafka.tools.DumpLogSegments"
PAYLOAD = re.compile(r"^\| offset: \d+ .* payload: (\{.*\})$")
STATIC = {"controller.quorum.voters": "1@127.0.0.1:9093"}


class Metadata:
    """Our metadata log and its controller on a directory of this machine."""

    def __init__(self, data: Path, settings: dict[str, str]) -> None:
        self._disk = LocalDisk()
        self._data = data
        self._config = Config.of(broker=settings)
        self._random = Random(1)

    async def __aenter__(self) -> "Metadata":
        self._directory = LogDirectory(self._disk, str(self._data))
        self._directory.claim(CLUSTER_ID, 1, lambda: self._random.randbytes(16))
        voter = Voter(1, directory_id(self._directory), (("CONTROLLER", "127.0.0.1", 9093),))
        clock, metadata = SystemClock(), MetadataPublisher()
        self.image, backlog = metadata.image, Backlog(clock)
        self.raft_log = await RaftLog.open(self._directory, voter, self._config, clock, self._random, metadata)
        controller = Controller(
            self.raft_log, metadata, config=lambda: self._config, random=self._random, new_id=self._new_id
        )
        await controller.take_office()
        self._channel = LocalChannel(controller, lambda: Budget(backlog))
        store: Any = SimpleNamespace(directories=[self._directory], logs={}, offline={})
        self._lifecycle = BrokerLifecycle(1, self._channel, metadata, store)
        return self

    def _new_id(self) -> bytes:
        return b"\x40" + self._random.randbytes(15)

    async def __aexit__(self, *_: object) -> None:
        await self._lifecycle.stop()
        await self.raft_log.close()
        self._directory.close(clean=True)
        self._disk.close()

    async def join(self) -> None:
        listener = Listener(name="PLAINTEXT", host="127.0.0.1", port=9092, security_protocol=0)
        await self._lifecycle.register(BrokerIdentity(CLUSTER_ID, self._random.randbytes(16), [listener], None))
        await ProducerIds(self._channel, 1, lambda: self._lifecycle.epoch).next()

    async def create(self, name: str, partitions: int, **configs: str) -> None:
        wanted = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=-1,
            assignments=[],
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        request = CreateTopicsRequest(topics=[wanted])
        reply = await self._channel.send(request)
        assert reply.topics[0].error_code == 0, reply

    async def delete(self, name: str) -> None:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=0)
        await self._channel.send(request)


async def _write(data: Path, settings: dict[str, str]) -> Image:
    """A log with something of everything, restarted once, with a snapshot in the middle."""
    async with Metadata(data, settings) as metadata:
        await metadata.join()
        await metadata.create("first", 3, retention_ms="5000")
        await metadata.create("gone", 1)
        await metadata.delete("gone")
        await metadata.raft_log.snapshot()
    async with Metadata(data, settings) as metadata:
        await metadata.join()
        await metadata.create("second", 1, cleanup_policy="compact")
        return metadata.image


def _dump(jars: Path, *files: Path) -> list[dict[str, Any]]:
    """What the tool decodes; it must not complain."""
    output = run_tool(
        jars, TOOL, "--cluster-metadata-decoder", "--deep-iteration", "--files", ",".join(map(str, files))
    )
    assert "isvalid: false" not in output.stdout
    assert "invalid" not in output.stdout.lower().replace("isvalid", "")
    found = [match for line in output.stdout.splitlines() if (match := PAYLOAD.match(line))]
    assert all('"type"' in match[1] for match in found), "a record the tool could not decode"
    return [json.loads(match[1]) for match in found]


def _topics(image: Image) -> dict[str, tuple[str, int, dict[str, str]]]:
    return {
        name: (uuid_to_text(topic.topic_id), len(topic.partitions), image.config(TOPIC, name))
        for name, topic in image.topics.items()
    }


def test_kafkas_tool_reads_our_log_and_snapshots(kafka_jars: Path, tmp_path: Path) -> None:
    for kind, settings in (("dynamic", {}), ("static", STATIC)):
        data = tmp_path / kind
        asyncio.run(_write(data, settings))
        log = data / "__cluster_metadata-0"
        snapshots = sorted(log.glob("*.checkpoint"))
        assert len(snapshots) == (2 if kind == "dynamic" else 1)
        types = [record["type"] for record in _dump(kafka_jars, log / "00000000000000000000.log")]
        assert types[0] == "BEGIN_TRANSACTION_RECORD"
        assert {"REGISTER_BROKER_RECORD", "PARTITION_RECORD", "REMOVE_TOPIC_RECORD", "PRODUCER_IDS_RECORD"} <= {*types}
        kept = _dump(kafka_jars, snapshots[-1])
        assert [record["data"]["name"] for record in kept if record["type"] == "TOPIC_RECORD"] == ["first"]
        bootstrap = _dump(kafka_jars, data / "bootstrap.checkpoint")
        assert {record["type"] for record in bootstrap} == {"FEATURE_LEVEL_RECORD"}


def test_we_find_in_kafkas_directory_what_kafkas_tool_finds(
    kafka_jars: Path, kafka_written: Written, tmp_path: Path
) -> None:
    """Features, topics, settings: by the tool's account of the log, replayed here in the simplest way."""
    data = tmp_path / DATA
    shutil.copytree(kafka_written.clean, data)
    names: dict[str, str] = {}
    partitions: dict[str, set[int]] = {}
    configs: dict[tuple[int, str], dict[str, str]] = {}
    features: dict[str, int] = {}
    for record in _dump(kafka_jars, *sorted((data / "__cluster_metadata-0").glob("*.log"))):
        told = record["data"]
        match record["type"]:
            case "TOPIC_RECORD":
                names[told["topicId"]] = told["name"]
            case "REMOVE_TOPIC_RECORD":
                configs.pop((TOPIC, names.pop(told["topicId"])), None)
            case "PARTITION_RECORD":
                partitions.setdefault(told["topicId"], set()).add(told["partitionId"])
            case "CONFIG_RECORD":
                settings = configs.setdefault((told["resourceType"], told["resourceName"]), {})
                settings[told["name"]] = told["value"]
            case "FEATURE_LEVEL_RECORD":
                features[told["name"]] = told["featureLevel"]

    async def opened() -> Image:
        async with Metadata(data, STATIC) as metadata:
            assert metadata.raft_log.kraft_version == 0
            await metadata.join()
            return metadata.image

    image = asyncio.run(opened())
    assert image.features == features
    assert {uuid_to_text(topic.topic_id): name for name, topic in image.topics.items()} == names
    assert len(names) > 3
    assert {uuid_to_text(topic.topic_id): set(topic.partitions) for topic in image.topics.values()} == {
        topic_id: partitions[topic_id] for topic_id in names
    }
    assert image.configs == {
        resource: {name: value for name, value in settings.items() if value is not None}
        for resource, settings in configs.items()
        if any(value is not None for value in settings.values())
    }
    # Kafka left them without a leader when it stopped.
    assert {partition.leader for _, _, partition in image.partitions()} == {1}


def test_kafka_goes_on_with_our_metadata_and_we_with_kafkas(kafka_jars: Path, tmp_path: Path) -> None:
    """There and back: nobody loses what the other decided."""
    home = tmp_path / "node"
    ours = asyncio.run(_write(home / DATA, STATIC))
    kafka = KafkaBroker(kafka_jars, home)
    kafka.start()
    try:
        Client(kafka.bootstrap).create_topics({"third": {"retention.ms": "7"}}, {"third": 2})
        # Every controller says that it takes over, as a warning.
        assert [line for line in kafka.warnings() if "Performing controller activation" not in line] == []
    finally:
        kafka.stop()

    async def opened() -> Image:
        async with Metadata(home / DATA, STATIC) as metadata:
            return metadata.image

    image = asyncio.run(opened())
    assert {name: told for name, told in _topics(image).items() if name != "third"} == _topics(ours)
    assert _topics(image)["third"][1:] == (2, {"retention.ms": "7"})
    assert image.next_producer_id == ours.next_producer_id
