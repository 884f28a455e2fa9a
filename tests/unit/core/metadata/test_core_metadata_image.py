"""What records do to the image, and which records cannot be."""

import pytest
from core_metadata_samples import Cluster, numbered, state, topic

from ottla.core.metadata.brokers import Heartbeat, Registration, heartbeat, register
from ottla.core.metadata.image import NO_LEADER, BadMetadata, Image
from ottla.core.metadata.snapshot import records_of
from ottla.wire.errors import Error, Refused
from ottla.wire.records import metadata as records
from ottla.wire.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)


def test_records_of_a_transaction_count_when_it_ends() -> None:
    """A leader that dies in the middle has decided nothing."""
    image = Image()
    image.replay(BeginTransactionRecord(name="t"))
    image.replay(FeatureLevelRecord(name="metadata.version", feature_level=30))
    assert image.level == 0
    assert image.in_transaction
    image.replay(EndTransactionRecord())
    assert image.level == 30
    assert not image.in_transaction


def test_records_of_an_aborted_transaction_never_count() -> None:
    image = Image()
    image.replay(BeginTransactionRecord())
    image.replay(FeatureLevelRecord(name="metadata.version", feature_level=30))
    image.replay(AbortTransactionRecord(reason="x"))
    assert image.level == 0
    assert not image.in_transaction


@pytest.mark.parametrize(
    "record",
    [
        EndTransactionRecord(),
        AbortTransactionRecord(),
        TopicRecord(name="t", topic_id=numbered(1, 1)),
        TopicRecord(name="other", topic_id=numbered(7, 1)),
        RemoveTopicRecord(topic_id=numbered(1, 1)),
        PartitionChangeRecord(partition_id=9, topic_id=numbered(7, 1), leader=1),
        records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=999, fenced=1),
        records.UnregisterBrokerRecord(broker_id=5, broker_epoch=0),
        records.ClearElrRecord(topic_name="nope"),
        ProducerIdsRecord(broker_id=1, next_producer_id=-5),
        object(),
    ],
)
def test_contradiction_is_refused(record: object) -> None:
    """Going on would build on a state that nobody decided."""
    cluster = Cluster()
    cluster.create(topic("t"))
    before = state(cluster.image)
    with pytest.raises(BadMetadata):
        cluster.image.replay(record)
    assert state(cluster.image) == before


def test_change_of_leader_begins_an_epoch_and_other_changes_do_not() -> None:
    cluster = Cluster()
    cluster.create(topic("t"))
    topic_id = cluster.image.topics["t"].topic_id
    cluster.image.replay(PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[1]))
    assert cluster.image.topics["t"].partitions[0][3:5] == (0, 1)
    cluster.image.replay(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1))
    assert cluster.image.topics["t"].partitions[0][3:5] == (1, 2)


def test_deleted_topic_takes_its_settings_along() -> None:
    """A topic made again under the name must not inherit them (KAFKA-12257)."""
    cluster = Cluster()
    cluster.create(topic("t.x", configs={"retention.ms": "5"}))
    first = cluster.image.topics["t.x"].topic_id
    cluster.image.replay(RemoveTopicRecord(topic_id=first))
    assert cluster.image.config(2, "t.x") == {}
    assert cluster.image.collisions == {}
    assert cluster.create(topic("t_x")).topics[0].error_code == Error.NONE


def test_what_nothing_reads_yet_survives_a_snapshot() -> None:
    """Users, rules and quotas of a cluster that Kafka made must be there when Kafka comes back."""
    image = Image()
    image.replay(FeatureLevelRecord(name="metadata.version", feature_level=30))
    kept = [
        records.UserScramCredentialRecord(
            name="u", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
        ),
        records.AccessControlEntryRecord(
            id=numbered(1, 1),
            resource_type=2,
            resource_name="t",
            pattern_type=3,
            principal="User:a",
            host="*",
            operation=3,
            permission_type=3,
        ),
        records.ClientQuotaRecord(
            entity=[records.EntityData(entity_type="user", entity_name=None)], key="k", value=1.5, remove=False
        ),
        records.DelegationTokenRecord(
            owner="o",
            requester="r",
            renewers=[],
            issue_timestamp=1,
            max_timestamp=2,
            expiration_timestamp=3,
            token_id="t",
        ),
    ]
    for record in kept:
        image.replay(record)
    told = state(image)
    again = Image()
    for record in records_of(image):
        again.replay(record)
    assert state(again) == told
    assert len(told) == 1 + len(kept)
    image.replay(records.RemoveUserScramCredentialRecord(name="u", mechanism=1))
    image.replay(records.RemoveAccessControlEntryRecord(id=numbered(1, 1)))
    image.replay(records.RemoveDelegationTokenRecord(token_id="t"))
    image.replay(
        records.ClientQuotaRecord(
            entity=[records.EntityData(entity_type="user", entity_name=None)], key="k", value=0.0, remove=True
        )
    )
    assert len(state(image)) == 1


# Brokers.


def test_returning_broker_leads_in_a_new_epoch() -> None:
    """Whoever still knows it from before must notice."""
    cluster = Cluster()
    cluster.create(topic("t", 2))
    cluster.join(1)
    assert [(p.leader, p.leader_epoch) for _, _, p in cluster.image.partitions()] == [(1, 1), (1, 1)]


def test_broker_is_elected_from_the_eligible_when_nobody_is_in_sync() -> None:
    """Kafka leaves a partition like this when its only broker stops cleanly."""
    cluster = Cluster()
    cluster.create(topic("t"))
    topic_id = cluster.image.topics["t"].topic_id
    cluster.image.replay(
        PartitionChangeRecord(
            partition_id=0, topic_id=topic_id, leader=-1, isr=[], eligible_leader_replicas=[1], last_known_elr=[1]
        )
    )
    cluster.join(1)
    partition = cluster.image.topics["t"].partitions[0]
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_elr) == (1, (1,), (), ())


def test_replica_in_sync_is_elected_before_the_eligible() -> None:
    """The in-sync one has everything that was acknowledged since the other fell behind."""
    cluster = Cluster(brokers=2)
    cluster.create(topic("t", assignments={0: [1, 2]}))
    topic_id = cluster.image.topics["t"].topic_id
    for eligible in ([], [2]):
        cluster.image.replay(
            PartitionChangeRecord(
                partition_id=0, topic_id=topic_id, leader=-1, isr=[1], eligible_leader_replicas=eligible
            )
        )
        cluster.join(2)
        assert cluster.image.topics["t"].partitions[0].leader == NO_LEADER
        cluster.join(1)
        assert cluster.image.topics["t"].partitions[0].leader == 1


def test_broker_that_may_lack_records_is_not_elected() -> None:
    cluster = Cluster(brokers=2)
    cluster.create(topic("t", assignments={0: [1, 2]}))
    topic_id = cluster.image.topics["t"].topic_id
    cluster.image.replay(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1, isr=[1]))
    cluster.join(1, ready=False)
    cluster.join(2)
    assert cluster.image.topics["t"].partitions[0].leader == 1  # Fenced, and still the only one with everything.


def test_stopped_broker_is_fenced_once_and_comes_back() -> None:
    cluster = Cluster()
    cluster.create(topic("t"))
    stop = cluster.heartbeat(1, stops=True)
    assert len(heartbeat(cluster.image, stop).records) == 1
    assert cluster.apply(heartbeat(cluster.image, stop)) == (True, True, True)
    assert cluster.image.live_brokers() == []
    assert not heartbeat(cluster.image, stop).records
    cluster.beat(1)
    assert [(p.leader, p.leader_epoch) for _, _, p in cluster.image.partitions()] == [(1, 1)]


def test_a_broker_that_comes_back_leads_where_it_alone_is_in_sync() -> None:
    """The replica that is not in sync would lose what was acknowledged."""
    cluster = Cluster(brokers=2)
    cluster.create(topic("t", assignments={0: [1, 2]}))
    topic_id = cluster.image.topics["t"].topic_id
    cluster.beat(1, stops=True)
    cluster.image.replay(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=NO_LEADER, isr=[1]))
    cluster.join(2)
    assert cluster.image.topics["t"].partitions[0].leader == NO_LEADER
    cluster.join(1)
    after = cluster.image.topics["t"].partitions[0]
    assert (after.leader, after.isr) == (1, (1,))


@pytest.mark.parametrize(
    ("broker_id", "epoch", "error"), [(9, 0, Error.BROKER_ID_NOT_REGISTERED), (1, 0, Error.STALE_BROKER_EPOCH)]
)
def test_heartbeat_of_a_broker_that_is_not_registered_is_refused(broker_id: int, epoch: int, error: Error) -> None:
    """One of an earlier start may be delivered late."""
    with pytest.raises(Refused) as refused:
        heartbeat(Cluster().image, Heartbeat(broker_id, epoch, 1_000))
    assert refused.value.error is error


def test_broker_is_fenced_until_it_has_read_its_own_registration() -> None:
    """Until then it does not know what else was decided about it."""
    cluster = Cluster(brokers=0)
    cluster.join(1, ready=False)
    epoch = cluster.image.brokers[1].epoch
    early, late = (heartbeat(cluster.image, Heartbeat(1, epoch, offset)) for offset in (epoch - 1, epoch))
    assert (early.records, early.reply) == ([], (False, True, False))
    assert (bool(late.records), late.reply) == (True, (True, False, False))


def test_directory_of_another_broker_is_refused() -> None:
    """Two nodes on one copied directory would both think the data theirs."""
    cluster = Cluster()
    stolen = Registration(2, numbered(1, 1), (), (), None, cluster.image.brokers[1].directories)
    with pytest.raises(Refused) as refused:
        register(cluster.image, stolen, 99)
    assert refused.value.error is Error.INVALID_REGISTRATION
