"""What a pipeline reads next: nothing twice, nothing passed over without a word, and nobody left waiting."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.core.names import TopicPartition
from ottla.pipelines.source.ranges import (
    EndOfReading,
    LogBounds,
    Loss,
    LossKind,
    OffsetRange,
    PartitionOffsets,
    TopicProgress,
    from_document,
    ranges_between,
    share,
    split,
    to_document,
    topic_ids_from,
)

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
OLD, NEW = b"o" * 16, b"n" * 16
PARTITIONS = st.builds(TopicPartition, st.sampled_from(["orders", "payments"]), st.integers(0, 5))
LAGS = st.dictionaries(PARTITIONS, st.integers(0, 10_000), max_size=12)


@given(LAGS, st.integers(0, 20_000))
def test_limit_is_used_up_and_shared_by_what_is_left_to_read(lags: PartitionOffsets, limit: int) -> None:
    """Partitions that come to their ends together keep one time; a watermark would drop what the last of them holds."""
    taken = share(lags, limit, {})
    total = sum(lags.values())
    assert sum(taken.values()) == min(limit, total)
    for partition, records in taken.items():
        assert 0 <= records <= lags[partition]
        assert abs(records * total - lags[partition] * min(limit, total)) < total


@given(st.dictionaries(PARTITIONS, st.integers(1, 10_000), min_size=1, max_size=12), st.integers(1, 20))
def test_every_partition_has_its_turn_under_the_smallest_limit(lags: PartitionOffsets, limit: int) -> None:
    served: PartitionOffsets = {}
    for epoch in range(len(lags)):
        served |= {partition: epoch for partition, records in share(lags, limit, served).items() if records}
    assert served.keys() == lags.keys()


@st.composite
def ranges(draw: st.DrawFn) -> list[OffsetRange]:
    found = []
    for partition in sorted(draw(st.sets(PARTITIONS, max_size=6))):
        start = draw(st.integers(0, 1_000))
        found.append(OffsetRange(partition, start, start + draw(st.integers(1, 1_000)), OLD))
    return found


@given(ranges(), st.integers(1, 50))
def test_split_ranges_hold_the_same_offsets_and_are_as_many_as_asked_for(
    whole: list[OffsetRange], partitions_min: int
) -> None:
    pieces = split(whole, partitions_min)
    assert len(pieces) >= min(partitions_min, sum(one.size for one in whole))
    assert all(piece.size > 0 for piece in pieces)
    assert [offset for one in whole for offset in _offsets(one)] == [
        offset for one in pieces for offset in _offsets(one)
    ]


def _offsets(one: OffsetRange) -> list[tuple[TopicPartition, int]]:
    return [(one.partition, offset) for offset in range(one.start, one.end)]


@given(st.dictionaries(PARTITIONS, st.integers(0, 2**62)), st.sets(st.sampled_from(["orders", "payments"])))
def test_position_survives_sparks_checkpoint_in_one_text(offsets: PartitionOffsets, told: set[str]) -> None:
    """Spark compares texts: equal positions in another order would make an epoch without records, for ever."""
    ids = {partition.topic: OLD for partition in offsets if partition.topic in told}
    document = to_document(offsets, ids)
    assert (from_document(document), topic_ids_from(document)) == (offsets, ids)
    backwards = dict(sorted(offsets.items(), reverse=True))
    assert str(to_document(backwards, dict(reversed(ids.items())))) == str(document)


@dataclass
class Life:
    """A pipeline beside topics that grow, lose their beginnings and gain partitions; Spark's log is all it keeps."""

    logs: dict[TopicPartition, LogBounds] = field(default_factory=lambda: {A: LogBounds(0, 0, OLD)})
    progress: TopicProgress = field(default_factory=TopicProgress)
    log: list[tuple[PartitionOffsets, dict[str, bytes]]] = field(default_factory=list)
    read: dict[TopicPartition, list[int]] = field(default_factory=dict)
    lost: dict[TopicPartition, list[int]] = field(default_factory=dict)

    def begin(self) -> None:
        self.log = [({A: 0}, {"orders": OLD})]
        self.progress.at(*self.log[-1])

    def grow(self, partition: TopicPartition, records: int) -> None:
        held = self.logs.setdefault(partition, LogBounds(0, 0, OLD))
        self.logs[partition] = held._replace(end=held.end + records)

    def retain(self, partition: TopicPartition, records: int) -> None:
        held = self.logs.get(partition, LogBounds(0, 0, OLD))
        self.logs[partition] = held._replace(start=min(held.end, held.start + records))

    def epoch(self, limit: int, until: EndOfReading | None = None) -> int:
        epoch = self.progress.advance(self.logs, limit, until)
        assert epoch.losses == []
        (start, _), end = self.log[-1], epoch.end
        assert epoch.records <= limit
        ranges, losses = ranges_between(start, end, self.logs, epoch.topic_ids)
        assert ranges_between(start, end, self.logs, epoch.topic_ids) == (ranges, losses)
        assert sum(one.size for one in ranges) == epoch.records
        for one in ranges:
            self.read.setdefault(one.partition, []).extend(range(one.start, one.end))
        for loss in losses:
            assert loss.kind is LossKind.REMOVED
            self.lost.setdefault(loss.partition, []).extend(range(loss.start, loss.end))
        self.log.append((end, epoch.topic_ids))
        return epoch.records

    def restart(self) -> None:
        self.progress = TopicProgress()
        self.progress.at(*self.log[-1])


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("grow"), st.sampled_from([A, B]), st.integers(0, 30)),
        st.tuples(st.just("retain"), st.sampled_from([A, B]), st.integers(0, 20)),
        st.tuples(st.just("epoch"), st.integers(1, 15)),
        st.tuples(st.just("restart")),
    ),
    max_size=40,
)


@given(STEPS)
def test_every_offset_is_read_once_or_told_to_be_lost(steps: list[tuple[str, ...]]) -> None:
    life = Life()
    life.begin()
    for name, *arguments in steps:
        getattr(life, name)(*arguments)
    while life.epoch(1_000):
        pass
    for partition, held in life.logs.items():
        read, lost = life.read.get(partition, []), life.lost.get(partition, [])
        assert sorted(read + lost) == list(range(held.end))
        assert read == sorted(read)
        assert life.log[-1][0][partition] == held.end


IDS = {"orders": OLD}


def epoch(
    position: PartitionOffsets, logs: Mapping[TopicPartition, LogBounds], ids: Mapping[str, bytes]
) -> tuple[PartitionOffsets, list[Loss]]:
    progress = TopicProgress()
    progress.at(position, ids)
    planned = progress.advance(logs, 1_000)
    return planned.end, planned.losses


def test_topic_made_anew_is_a_loss_and_read_from_its_start() -> None:
    """Its offsets mean other records: going on at the old one would pass over the first of them without a word."""
    logs = {A: LogBounds(0, 500, NEW)}
    end, losses = epoch({A: 100}, logs, IDS)
    assert losses == [Loss(LossKind.RECREATED, A, 0, 100)]
    assert end == {A: 0}
    assert ranges_between({A: 100}, end, logs, {"orders": NEW}) == ([], [])
    assert ranges_between(end, {A: 500}, logs, {"orders": NEW}) == ([OffsetRange(A, 0, 500, NEW)], [])


def test_topic_made_anew_before_anything_was_read_is_no_loss() -> None:
    assert epoch({A: 0}, {A: LogBounds(0, 5, NEW)}, IDS) == ({A: 5}, [])


def test_epoch_that_is_done_again_does_not_read_another_topic() -> None:
    logs = {A: LogBounds(0, 500, NEW)}
    assert ranges_between({A: 0}, {A: 10}, logs, IDS) == ([], [Loss(LossKind.RECREATED, A, 0, 10)])


def test_log_that_lost_its_end_is_read_on_from_there() -> None:
    """An unclean election took records that were read already; those before them must not be read again."""
    end, losses = epoch({A: 100}, {A: LogBounds(0, 90, OLD)}, IDS)
    assert (end, losses) == ({A: 90}, [Loss(LossKind.CUT, A, 90, 100)])


def test_shorter_log_of_a_broker_that_tells_no_ids_is_read_from_its_start() -> None:
    """Nobody knows whether it is the same topic; of another one nothing may be left out."""
    end, losses = epoch({A: 100}, {A: LogBounds(0, 90)}, {})
    assert (end, losses) == ({A: 0}, [Loss(LossKind.CUT, A, 90, 100)])


def test_deleted_topic_is_told_once_and_keeps_its_position_and_id() -> None:
    progress = TopicProgress()
    progress.at({A: 7}, IDS)
    assert progress.advance({}, 10).losses == [Loss(LossKind.DELETED, A, 7, 7)]
    again = progress.advance({}, 10)
    assert (again.end, again.topic_ids, again.losses) == ({A: 7}, IDS, [])


def test_epoch_that_is_done_again_tells_what_has_gone_meanwhile() -> None:
    start, end = {A: 0, B: 0}, {A: 10, B: 10}
    logs = {A: LogBounds(4, 8, OLD)}
    assert ranges_between(start, end, logs, IDS) == (
        [OffsetRange(A, 4, 8, OLD)],
        [
            Loss(LossKind.REMOVED, A, 0, 4),
            Loss(LossKind.CUT, A, 8, 10),
            Loss(LossKind.DELETED, B, 0, 10),
        ],
    )


def test_reading_ends_for_good_where_it_was_told() -> None:
    life = Life()
    life.begin()
    life.grow(A, 10)
    until = EndOfReading({A: 6})
    life.grow(B, 3)
    assert [life.epoch(4, until), life.epoch(4, until), life.epoch(4, until)] == [4, 2, 0]
    assert life.log[-1][0] == {A: 6}
    assert life.log[-1] == life.log[-2]


def test_end_for_good_that_was_passed_before_takes_nothing_back() -> None:
    """A replay that had ended is started again."""
    progress = TopicProgress()
    progress.at({A: 10}, IDS)
    planned = progress.advance({A: LogBounds(0, 20, OLD)}, 100, EndOfReading({A: 6}))
    assert (planned.end, planned.losses) == ({A: 10}, [])


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (LossKind.REMOVED, "offsets 1,000 to 1,999 were removed before they were read"),
        (LossKind.CUT, "the log ends at 1,000, and the pipeline had reached 2,000"),
        (LossKind.RECREATED, "was deleted and created again; the pipeline had reached 2,000"),
        (LossKind.DELETED, "no longer exists; the pipeline had reached 1,000"),
    ],
)
def test_loss_says_what_is_gone_and_where(kind: LossKind, text: str) -> None:
    assert str(Loss(kind, A, 1_000, 2_000)).startswith("topic orders, partition 0")
    assert str(Loss(kind, A, 1_000, 2_000)).endswith(text)
