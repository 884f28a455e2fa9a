"""Directories that brokers cannot use: what is in them has another leader, or none."""

from core_metadata_samples import Cluster, numbered, topic

from ottla.core.metadata.brokers import Placed, assign_directories, heartbeat
from ottla.core.metadata.image import LOST_DIRECTORY, NO_LEADER, Partition, directory_of

GOOD, BAD = numbered(9, 10), numbered(9, 11)


def cluster_of_two_directories() -> Cluster:
    """Broker 1 with topic `good` in one directory and `bad` in another."""
    cluster = Cluster(brokers=0)
    cluster.join(1, directories=2)
    cluster.create(topic("good"), topic("bad"))
    place(cluster, "good", GOOD)
    place(cluster, "bad", BAD)
    return cluster


def place(cluster: Cluster, name: str, directory: bytes) -> None:
    placed = [Placed(cluster.image.topics[name].topic_id, 0, directory)]
    cluster.apply(assign_directories(cluster.image, 1, cluster.image.brokers[1].epoch, placed))


def partition(cluster: Cluster, name: str) -> Partition:
    return cluster.image.topics[name].partitions[0]


def test_what_is_in_a_directory_that_failed_has_no_leader() -> None:
    cluster = cluster_of_two_directories()
    good, bad = partition(cluster, "good"), partition(cluster, "bad")
    cluster.beat(1, offline=(BAD,))
    assert cluster.image.brokers[1].directories == (GOOD,)
    assert partition(cluster, "good") == good
    after = partition(cluster, "bad")
    assert (after.leader, after.leader_epoch, after.isr) == (NO_LEADER, bad.leader_epoch + 1, bad.isr)


def test_saying_the_same_again_decides_nothing() -> None:
    cluster = cluster_of_two_directories()
    assert not heartbeat(cluster.image, cluster.heartbeat(1)).records
    cluster.beat(1, offline=(BAD,))
    assert not heartbeat(cluster.image, cluster.heartbeat(1, offline=(BAD,))).records


def test_a_broker_that_comes_without_a_directory_does_not_lead_what_is_in_it() -> None:
    cluster = cluster_of_two_directories()
    cluster.join(1, directories=1)
    assert (partition(cluster, "good").leader, partition(cluster, "bad").leader) == (1, NO_LEADER)
    cluster.join(1, directories=2)
    assert (partition(cluster, "good").leader, partition(cluster, "bad").leader) == (1, 1)


def test_a_log_that_is_lost_has_no_leader_until_it_is_in_a_directory_again() -> None:
    cluster = cluster_of_two_directories()
    before = partition(cluster, "bad")
    place(cluster, "bad", LOST_DIRECTORY)
    lost = partition(cluster, "bad")
    assert (lost.leader, lost.leader_epoch) == (NO_LEADER, before.leader_epoch + 1)
    assert directory_of(lost, 1) == LOST_DIRECTORY
    cluster.join(1, directories=2)
    assert partition(cluster, "bad").leader == NO_LEADER
    place(cluster, "bad", GOOD)
    found = partition(cluster, "bad")
    assert (found.leader, found.leader_epoch, directory_of(found, 1)) == (1, lost.leader_epoch + 1, GOOD)


def test_a_move_between_directories_that_can_be_used_changes_no_leader() -> None:
    cluster = cluster_of_two_directories()
    before = partition(cluster, "bad")
    place(cluster, "bad", GOOD)
    after = partition(cluster, "bad")
    assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)
