"""The checkers find each planted anomaly, and are silent about what is right."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from ottla.sim.log import checkers
from ottla.sim.log.checkers import Seen, SeenProducer
from ottla.sim.log.history import LogHistory, Policy
from ottla.sim.played import Violation
from ottla.sim.records import CONTROL, TRANSACTIONAL, DecodedBatch, DecodedRecord, decode, encode_marker

PLAIN, OPEN_TXN, ABORTED, COMMITTED = range(4)


def batch(
    base: int, values: list[tuple[bytes, bytes | None]], *, pid: int = -1, sequence: int = -1, attributes: int = 0
) -> DecodedBatch:
    records = tuple(
        DecodedRecord(base + delta, 1_000 + base + delta, key, value) for delta, (key, value) in enumerate(values)
    )
    epoch = 0 if pid >= 0 else -1
    newest = max(record.timestamp for record in records)
    return DecodedBatch(base, 0, attributes, base + len(values) - 1, pid, epoch, sequence, records, newest, 100)


def marker(base: int, pid: int, *, commit: bool) -> DecodedBatch:
    control = decode(encode_marker(commit, pid, 0, 0, 1_000 + base))
    records = tuple(replace(record, offset=base) for record in control.records)
    return replace(control, base_offset=base, last_offset=base, leader_epoch=0, records=records)


def make_history(policy: Policy | None = None) -> LogHistory:
    """Plain records, a committed and an aborted transaction, a tombstone, and a transaction still open; all durable."""
    history = LogHistory(policy or Policy(), latest_ms=2_000)
    txn = TRANSACTIONAL
    for one in (
        batch(0, [(b"a", b"1"), (b"b", b"2")]),
        batch(2, [(b"a", b"3")], pid=7, sequence=0, attributes=txn),
        marker(3, 7, commit=True),
        batch(4, [(b"b", b"4"), (b"c", b"5")], pid=8, sequence=0, attributes=txn),
        marker(6, 8, commit=False),
        batch(7, [(b"b", None)]),
        batch(8, [(b"d", b"6")], pid=7, sequence=1, attributes=txn),
        batch(9, [(b"a", b"7")]),
    ):
        history.sending(one)
        history.answered(accepted=True)
    history.before_retention = tuple(history.batches)
    history.flushed(10)
    return history


def make_seen(history: LogHistory) -> Seen:
    producers = {
        pid: SeenProducer(state.epoch, state.last_sequence, state.txn_first_offset)
        for pid, state in history.producers().items()
    }
    end = history.end_offset
    return Seen(0, end, end, history.last_stable_offset(end), tuple(history.batches), producers, ((0, 0),))


def without(seen: Seen, *offsets: int) -> Seen:
    """As the cleaner leaves it: records gone, batches that lost all of theirs gone too."""
    batches = []
    for one in seen.batches:
        left = tuple(record for record in one.records if record.offset not in offsets)
        if left:
            batches.append(replace(one, records=left))
    return replace(seen, batches=tuple(batches))


def with_record(seen: Seen, offset: int, **changes: object) -> Seen:
    batches = tuple(
        replace(
            one,
            records=tuple(replace(r, **changes) if r.offset == offset else r for r in one.records),  # type: ignore[arg-type]
        )
        for one in seen.batches
    )
    return replace(seen, batches=batches)


def test_a_clean_history_gives_no_alarm():
    history = make_history()
    seen = make_seen(history)
    assert seen.last_stable_offset == 8
    checkers.check_live(history, seen)
    checkers.check_recovered(history, seen)
    checkers.check_committed(history, [0, 1, 2, 7], 0, 8, seen)
    checkers.check_bounded(seen.batches, 10, "high watermark")
    checkers.check_time(seen, 1_003, (3, 1_003))
    checkers.check_time(seen, 5_000, None)
    checkers.check_same(seen, seen, "twice")


def test_what_was_not_durable_may_be_lost_from_the_end():
    history = make_history()
    history.durable_end = 8
    seen = make_seen(history)
    shorter = replace(
        seen,
        end_offset=8,
        high_watermark=8,
        batches=seen.batches[:-2],
        producers={**seen.producers, 7: SeenProducer(0, 0, None)},
    )
    checkers.check_recovered(history, shorter)
    assert history.end_offset == 8


def test_a_batch_that_was_never_answered_may_be_found():
    history = make_history()
    history.sending(batch(10, [(b"z", b"8")]))
    seen = make_seen(history)
    found = replace(seen, end_offset=11, batches=(*seen.batches, batch(10, [(b"z", b"8")])))
    checkers.check_recovered(history, found)
    assert history.end_offset == 11


PLANTED: dict[str, tuple[str, Callable[[Seen], Seen]]] = {
    "an acknowledged record is gone": ("I1", lambda seen: without(seen, 1)),
    "the whole tail is gone": ("I1", lambda seen: replace(seen, end_offset=9, high_watermark=9)),
    "the front is gone though nothing expired": ("I1", lambda seen: replace(without(seen, 0, 1), start_offset=2)),
    "a value changed": ("I2", lambda seen: with_record(seen, 2, value=b"x")),
    "a key changed": ("I2", lambda seen: with_record(seen, 0, key=b"x")),
    "a timestamp changed": ("I2", lambda seen: with_record(seen, 0, timestamp=5)),
    "a header appeared": ("I2", lambda seen: with_record(seen, 0, headers=(("h", b"x"),))),
    "a record nobody wrote": (
        "I2",
        lambda seen: replace(
            seen,
            end_offset=11,
            batches=(*seen.batches, batch(10, [(b"q", b"q")])),
        ),
    ),
    "two batches share an offset": ("I2", lambda seen: replace(seen, batches=(*seen.batches, seen.batches[-1]))),
    "a batch changed its producer": (
        "I2",
        lambda seen: replace(seen, batches=(replace(seen.batches[0], producer_id=9), *seen.batches[1:])),
    ),
    "a batch changed its leader epoch": (
        "I2",
        lambda seen: replace(seen, batches=(replace(seen.batches[0], leader_epoch=9), *seen.batches[1:])),
    ),
    "the watermark passes the end": ("I14", lambda seen: replace(seen, high_watermark=11)),
    "the last stable offset passes the watermark": ("I14", lambda seen: replace(seen, high_watermark=7)),
    "the last stable offset passes an open transaction": ("I14", lambda seen: replace(seen, last_stable_offset=9)),
    "a producer is forgotten": (
        "I19",
        lambda seen: replace(seen, producers={7: seen.producers[7]}),
    ),
    "a sequence went back": (
        "I19",
        lambda seen: replace(seen, producers={**seen.producers, 7: SeenProducer(0, 0, 8)}),
    ),
    "an open transaction is forgotten": (
        "I19",
        lambda seen: replace(seen, producers={**seen.producers, 7: SeenProducer(0, 1, None)}),
    ),
    "a producer epoch changed": (
        "I19",
        lambda seen: replace(seen, producers={**seen.producers, 8: SeenProducer(1, 1, None)}),
    ),
    "a producer nobody knows": (
        "I19",
        lambda seen: replace(seen, producers={**seen.producers, 99: SeenProducer(0, 0, None)}),
    ),
    "the epoch cache is empty": ("I15", lambda seen: replace(seen, epochs=())),
    "the epoch cache names a later start": ("I15", lambda seen: replace(seen, epochs=((0, 5),))),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_anomaly_is_found(name):
    invariant, plant = PLANTED[name]
    with pytest.raises(Violation) as caught:
        checkers.check_live(make_history(), plant(make_seen(make_history())))
    assert caught.value.invariant in (invariant, "I1")


@pytest.mark.parametrize("name", PLANTED)
def test_planted_anomaly_is_found_after_a_crash(name):
    invariant, plant = PLANTED[name]
    with pytest.raises(Violation) as caught:
        checkers.check_recovered(make_history(), plant(make_seen(make_history())))
    assert caught.value.invariant in (invariant, "I1", "I2")


COMPACT = Policy(compact=True, delete=False, delete_retention_ms=500)


def compacted_history(*times: int) -> LogHistory:
    history = make_history(COMPACT)
    for at_ms in times:
        history.cleaned(at_ms, 8)
    return history


@pytest.mark.parametrize(
    ("times", "removed"),
    [
        ((1_500,), (0,)),  # superseded by a committed record
        ((1_500,), (0, 1, 4, 5)),  # aborted data goes with what it never superseded
        ((1_500, 2_000), (0, 1, 4, 5, 7)),  # the tombstone after its grace period
        ((1_500, 2_000), (0, 1, 4, 5, 6, 7)),  # and the marker of what is gone
    ],
)
def test_compaction_may_remove(times, removed):
    history = compacted_history(*times)
    checkers.check_live(history, without(make_seen(history), *removed))


@pytest.mark.parametrize(
    ("times", "removed", "why"),
    [
        ((1_500,), (2,), "the last committed with its key; the one at 9 is not cleanable yet"),
        ((1_500,), (8,), "its transaction is open"),
        ((1_500,), (9,), "beyond the last stable offset"),
        ((1_500,), (7,), "a tombstone in the first run"),
        ((1_500, 1_900), (1, 7), "a tombstone before delete.retention.ms"),
        ((1_500, 2_000), (3,), "a commit marker whose record is there"),
        ((1_500, 2_000), (4, 6), "an abort marker one of whose records is there"),
        ((1_500, 1_900), (4, 5, 6), "a marker before delete.retention.ms"),
        ((), (0,), "the cleaner never ran"),
    ],
)
def test_compaction_must_not_remove(times, removed, why):
    history = compacted_history(*times)
    with pytest.raises(Violation, match=r"^I(1|20):"):
        checkers.check_live(history, without(make_seen(history), *removed))
    assert why


def test_an_aborted_record_does_not_supersede():
    """Offset 1 is the last committed value of its key until the tombstone at 7; the aborted one at 4 is nothing."""
    history = make_history(COMPACT)
    history.cleaned(1_500, 7)
    with pytest.raises(Violation, match="I20"):
        checkers.check_live(history, without(make_seen(history), 1))


def test_young_records_are_left_alone():
    history = make_history(Policy(compact=True, delete=False, min_compaction_lag_ms=100))
    history.cleaned(1_101, 8)
    with pytest.raises(Violation, match="nothing was allowed to remove"):
        checkers.check_live(history, without(make_seen(history), 4, 5))


def test_a_young_record_before_the_log_start_keeps_nothing_from_the_cleaner():
    """Seed 900805: it is as good as gone."""
    history = make_history(Policy(compact=True, delete=False, min_compaction_lag_ms=100))
    history.batches[0] = replace(history.batches[0], max_timestamp=9_000)
    history.start_offset = 2
    history.cleaned(1_150, 8)
    assert history.cleanings[-1].limit == 8
    history.start_offset = 1
    history.cleaned(1_150, 8)
    assert history.cleanings[-1].limit == 0


@pytest.mark.parametrize(("durable_end", "start_offset", "excused"), [(8, 9, True), (9, 9, False), (8, 8, False)])
def test_an_open_transaction_is_forgotten_only_with_records_that_were_lost_and_deleted(
    durable_end, start_offset, excused
):
    """Seed 900567: the log start made the loss legal; nothing of the transaction is left to be read."""
    history = make_history()
    history.durable_end, history.asked_start = durable_end, 9
    seen = make_seen(history)
    left = tuple(batch for batch in seen.batches if batch.last_offset >= start_offset)
    forgotten = {pid: one for pid, one in seen.producers.items() if pid != 7}
    seen = replace(
        seen,
        start_offset=start_offset,
        batches=left,
        producers=forgotten,
        epochs=((0, start_offset),),
        last_stable_offset=start_offset,
    )
    if excused:
        checkers.check_recovered(history, seen)
    else:
        with pytest.raises(Violation, match="I19: producer 7 is forgotten"):
            checkers.check_recovered(history, seen)


def test_read_committed_sees_no_aborted_record_and_misses_no_committed_one():
    history = make_history()
    seen = make_seen(history)
    with pytest.raises(Violation, match="offset 4 was served"):
        checkers.check_committed(history, [0, 1, 2, 4, 7], 0, 8, seen)
    with pytest.raises(Violation, match="offset 2 is committed"):
        checkers.check_committed(history, [0, 1, 7], 0, 8, seen)
    with pytest.raises(Violation, match="offset 8 was served"):
        checkers.check_committed(history, [0, 1, 2, 7, 8], 0, 8, seen)


def test_nothing_is_served_from_the_bound_on():
    with pytest.raises(Violation, match="I14"):
        checkers.check_bounded(make_history().batches, 9, "high watermark")


def test_the_watermark_never_goes_back():
    checkers.check_watermark_kept(3, 3)
    with pytest.raises(Violation, match="I14"):
        checkers.check_watermark_kept(3, 2)


def test_recovering_twice_must_give_the_same():
    seen = make_seen(make_history())
    with pytest.raises(Violation, match="end_offset was 10, then 9"):
        checkers.check_same(seen, replace(seen, end_offset=9), "twice")


def test_time_look_up_gives_the_first_record():
    seen = make_seen(make_history())
    with pytest.raises(Violation):
        checkers.check_time(seen, 1_003, (4, 1_004))
    with pytest.raises(Violation):
        checkers.check_time(seen, 1_003, (5, 1_005))
    with pytest.raises(Violation):
        checkers.check_time(seen, 1_003, None)


def test_retention_may_take_what_is_old_or_too_much_and_nothing_else():
    by_time = make_history(Policy(retention_ms=100))
    by_time.retaining_at_ms = 1_103
    assert by_time.may_start_at(2)
    assert not by_time.may_start_at(4), "the marker at 3 is exactly as old as allowed"
    by_size = make_history(Policy(retention_bytes=450))
    by_size.retaining_at_ms = 1_103
    assert by_size.may_start_at(4), "four batches and a marker are left"
    assert not by_size.may_start_at(7), "three batches are left"
    idle = make_history(Policy(retention_ms=100))
    assert not idle.may_start_at(2), "retention did not run"
    asked = make_history()
    asked.asked_start = 4
    assert asked.may_start_at(4)
    assert not asked.may_start_at(6)


def test_retention_may_take_what_is_too_much_and_then_what_is_old():
    history = make_history(Policy(retention_ms=100, retention_bytes=650))
    history.retaining_at_ms = 1_108
    young = replace(history.batches[0], max_timestamp=1_100)
    history.before_retention = (young, *history.batches[1:])
    assert history.may_start_at(8)
    assert not history.may_start_at(9), "the batch at 8 is exactly as old as allowed"
    history.before_retention = (
        history.batches[0],
        *history.batches[1:4],
        replace(history.batches[4], max_timestamp=1_100),
    )
    assert not history.may_start_at(7), "the marker at 6 is young, and too little is left"


def test_retention_by_time_goes_by_what_the_cleaner_has_left():
    history = make_history(Policy(compact=True, retention_ms=100))
    history.before_retention = tuple(one for one in history.batches if one.base_offset != 3)
    history.retaining_at_ms = 1_103
    assert history.may_start_at(4), "the marker at 3 was cleaned away"


def test_what_a_restart_under_way_has_removed_may_come_back():
    history = make_history()
    seen = make_seen(history)
    history.restarting = True
    checkers.check_recovered(history, replace(seen, end_offset=0, batches=()))
    checkers.check_recovered(history, seen)


def test_a_crash_may_take_the_sequences_before_the_log_start_with_unsynced_records():
    history = make_history()
    history.durable_end, history.start_offset = 4, 6
    seen = make_seen(history)
    seen = replace(
        seen,
        start_offset=6,
        batches=tuple(one for one in seen.batches if one.last_offset >= 6),
        producers={**seen.producers, 8: SeenProducer(0, -1, None)},
    )
    synced = history.copy()
    synced.durable_end = 10
    with pytest.raises(Violation, match="I19: producer 8"):
        checkers.check_recovered(synced, seen)
    checkers.check_recovered(history, seen)
    checkers.check_live(history, seen)


def test_a_truncation_under_way_may_be_found_done_or_not():
    for end in (7, 10):
        history = make_history()
        history.truncating_to = 7
        seen = make_seen(history)
        batches = tuple(one for one in seen.batches if one.last_offset < end)
        producers = seen.producers if end == 10 else {**seen.producers, 7: SeenProducer(0, 0, None)}
        stable = min(end, 8)
        checkers.check_recovered(
            history,
            replace(
                seen,
                end_offset=end,
                high_watermark=end,
                last_stable_offset=stable,
                batches=batches,
                producers=producers,
            ),
        )


def test_markers_are_control_batches():
    """The helpers of this file make what the format says."""
    assert marker(3, 7, commit=True).attributes == CONTROL | TRANSACTIONAL
    assert marker(3, 7, commit=True).is_commit
    assert not marker(3, 7, commit=False).is_commit
