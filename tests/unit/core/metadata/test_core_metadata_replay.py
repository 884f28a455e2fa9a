"""Whatever was decided, its records say it all."""

from collections.abc import Callable

from core_metadata_samples import Cluster, create_partitions, delete_topics, state, topic
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.core.metadata.brokers import Placed, assign_directories
from ottla.core.metadata.configs import ConfigChange, ConfigOperation, ResourceChange, alter
from ottla.core.metadata.framing import decode_record, encode_record
from ottla.core.metadata.image import BROKER, GROUP, NO_LEADER, TOPIC, Image
from ottla.core.metadata.names import collision_key
from ottla.core.metadata.producer_ids import allocate
from ottla.core.metadata.snapshot import decode_snapshot, encode_snapshot, records_of
from ottla.wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.api.delete_topics import DeleteTopicsRequest

Step = Callable[[Cluster], None]
NAMES = st.sampled_from(["a", "b.c", "b_c", "d", "e-1", "..", "x" * 250])
COUNTS = st.integers(-2, 4)


def _create(name: str, partitions: int, replicas: int, settings: dict[str, str]) -> Step:
    return lambda cluster: void(cluster.create(topic(name, partitions, replicas, configs=dict(settings))))


def _grow(name: str, count: int) -> Step:
    wanted = CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=0, validate_only=False)
    return lambda cluster: void(cluster.apply(create_partitions(cluster.image, request, cluster.random)))


def _delete(name: str) -> Step:
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=0)
    return lambda cluster: void(cluster.apply(delete_topics(cluster.image, request)))


def _configure(resource: tuple[int, str], name: str, operation: int, value: str, replaces: bool) -> Step:
    changes = [
        ResourceChange(*resource, [ConfigChange(name, ConfigOperation.SET if replaces else operation, value)], replaces)
    ]

    def step(cluster: Cluster) -> None:
        cluster.apply(alter(cluster.image, changes, config=cluster.config, validate_only=False))

    return step


def _producer_ids() -> Step:
    return lambda cluster: void(cluster.apply(allocate(cluster.image, 1, cluster.image.brokers[1].epoch)))


def _rejoin(broker_id: int, ready: bool, directories: int) -> Step:
    return lambda cluster: cluster.join(broker_id, ready=ready, directories=directories)


def _directories(broker_id: int) -> Step:
    def step(cluster: Cluster) -> None:
        placed = [
            Placed(one.topic_id, index, cluster.image.brokers[broker_id].directories[-1])
            for one, index, partition in cluster.image.partitions()
            if broker_id in partition.replicas
        ]
        epoch = cluster.image.brokers[broker_id].epoch
        cluster.apply(assign_directories(cluster.image, broker_id, epoch, placed))

    return step


def void(_: object) -> None:
    """A step has no result."""


SETTINGS = st.dictionaries(
    st.sampled_from(["retention.ms", "cleanup.policy", "min.insync.replicas", "nonsense"]),
    st.sampled_from(["1", "2", "delete", "compact,delete", "-7"]),
    max_size=2,
)
STEPS = st.one_of(
    st.builds(_create, NAMES, COUNTS, COUNTS, SETTINGS),
    st.builds(_grow, NAMES, COUNTS),
    st.builds(_delete, NAMES),
    st.builds(
        _configure,
        st.sampled_from([(TOPIC, "a"), (TOPIC, "d"), (BROKER, ""), (BROKER, "1"), (GROUP, "g")]),
        st.sampled_from(["retention.ms", "cleanup.policy", "min.insync.replicas", "log.retention.ms", "log.dirs"]),
        st.integers(0, 4),
        st.sampled_from(["1", "2", "delete", "compact", "zero"]),
        st.booleans(),
    ),
    st.builds(_producer_ids),
    st.builds(_rejoin, st.integers(1, 3), st.booleans(), st.integers(1, 2)),
    st.builds(_directories, st.integers(1, 2)),
)


def _replayed(records: list[object]) -> Image:
    image = Image()
    for record in records:
        image.replay(record)
    return image


def _holds(image: Image) -> None:
    assert {one.topic_id: one for one in image.topics.values()} == image.topics_by_id
    assert all(name == one.name for name, one in image.topics.items())
    colliding = {name for names in image.collisions.values() for name in names}
    assert colliding == {name for name in image.topics if collision_key(name)}
    assert all(len(names) == 1 for names in image.collisions.values())
    assert all(name in image.topics for kind, name in image.configs if kind == TOPIC)
    assert all(image.configs.values())
    for one, _, partition in image.partitions():
        assert sorted(one.partitions) == list(range(len(one.partitions)))
        assert len(set(partition.replicas)) == len(partition.replicas) == len(partition.directories)
        assert set(partition.isr) <= set(partition.replicas)
        assert partition.leader == NO_LEADER or partition.leader in partition.isr
        assert all(broker_id in image.brokers for broker_id in partition.replicas)


@settings(max_examples=60)
@given(steps=st.lists(STEPS, max_size=12), data=st.data())
def test_replaying_what_was_decided_gives_the_live_image(steps: list[Step], data: st.DataObject) -> None:
    """From the beginning, and from a snapshot after any record followed by the rest."""
    cluster = Cluster(brokers=2)
    for step in steps:
        before, length = state(cluster.image), len(cluster.records)
        kept, copy = cluster.image, cluster.image.copy()
        cluster.image = copy
        step(cluster)
        assert state(kept) == before, "what a copy replays shows in the original"
        _holds(cluster.image)
        if len(cluster.records) == length:
            assert state(cluster.image) == before, "deciding alone changed the image"
    live, level = state(cluster.image), cluster.image.level
    written = [encode_record(record, level) for record in cluster.records]
    assert state(_replayed([decode_record(value) for value in written])) == live

    # A snapshot is taken between two batches, and the first one is a transaction.
    bootstrap = next(at for at, record in enumerate(cluster.records) if type(record).__name__.startswith("End")) + 1
    cut = data.draw(st.integers(bootstrap, len(cluster.records)), "records before the snapshot")
    prefix = _replayed(cluster.records[:cut])
    batches = encode_snapshot(list(records_of(prefix)), level=level, epoch=3, now_ms=1000)
    again = _replayed([*decode_snapshot(b"".join(batches)).records, *cluster.records[cut:]])
    assert state(again) == live
