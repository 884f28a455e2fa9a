"""Where replicas go."""

from collections import Counter
from random import Random

import pytest
from core_metadata_samples import Cluster
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.core.metadata.placement import Usable
from ottla.wire.errors import Error, Refused


def _cluster(racks: list[str | None], fenced: set[int]) -> Cluster:
    cluster = Cluster(brokers=0)
    for broker_id, rack in enumerate(racks, 1):
        cluster.join(broker_id, rack=rack, ready=broker_id not in fenced)
    return cluster


@settings(max_examples=80)
@given(
    racks=st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=7),
    fenced=st.sets(st.integers(1, 7), max_size=4),
    partitions=st.integers(1, 20),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_replicas_are_apart_and_the_leader_is_alive(
    racks: list[str | None], fenced: set[int], partitions: int, seed: int, data: st.DataObject
) -> None:
    cluster = _cluster(racks, fenced)
    alive = [broker_id for broker_id in cluster.image.brokers if broker_id not in fenced]
    usable = Usable(cluster.image.brokers.values(), Random(seed))
    if not alive:
        with pytest.raises(Refused):
            usable.place(1)
        return
    factor = data.draw(st.integers(1, len(racks)), "replication factor")
    for _ in range(partitions):
        replicas = usable.place(factor)
        assert len(set(replicas)) == len(replicas) == factor
        assert replicas[0] in alive
        if not fenced:
            names = {racks[broker_id - 1] for broker_id in replicas}
            assert len(names) == min(factor, len(set(racks))), "a rack has two replicas and another has none"


def test_leaders_and_replicas_are_spread_evenly() -> None:
    cluster = _cluster([None] * 5, set())
    usable = Usable(cluster.image.brokers.values(), Random(3))
    placed = [usable.place(3) for _ in range(100)]
    assert set(Counter(replicas[0] for replicas in placed).values()) == {20}
    assert set(Counter(broker_id for replicas in placed for broker_id in replicas).values()) == {60}


def test_small_topics_do_not_all_begin_with_the_first_broker() -> None:
    cluster = _cluster([None] * 4, set())
    first = {Usable(cluster.image.brokers.values(), Random(seed)).place(1)[0] for seed in range(40)}
    assert first == {1, 2, 3, 4}


def test_more_replicas_than_brokers_are_refused() -> None:
    usable = Usable(_cluster([None, None], set()).image.brokers.values(), Random(1))
    with pytest.raises(Refused) as refused:
        usable.place(3)
    assert refused.value.error is Error.INVALID_REPLICATION_FACTOR


def test_placement_repeats_with_its_seed() -> None:
    cluster = _cluster(["a", "b", "a", None, "c"], {2})

    def placed() -> list[list[int]]:
        usable = Usable(cluster.image.brokers.values(), Random(9))
        return [usable.place(2) for _ in range(30)]

    assert placed() == placed()
