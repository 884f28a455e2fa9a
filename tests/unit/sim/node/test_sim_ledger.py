"""The ledger of the node's world: histories with one planted anomaly each, all found; clean ones, no false alarm."""

import pytest

from ottla.sim.node.ledger import ID, Key, Ledger, Sent
from ottla.sim.node.swarm import TopicPlan
from ottla.sim.played import Violation
from ottla.sim.records import DecodedRecord

KEY: Key = (bytes(16), 0)
START = {KEY: 0}
OTHER: Key = (bytes(16), 1)
SETTINGS = {
    "flush.messages": "1",
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "message.timestamp.type": "CreateTime",
}


def new_ledger(**changes: str) -> Ledger:
    ledger = Ledger()
    settings = SETTINGS | {name.replace("_", "."): value for name, value in changes.items()}
    ledger.made(bytes(16), 2, TopicPlan("t", 2, settings))
    return ledger


def sent(ledger: Ledger, number: int, *, key: bytes | None = None, once: bool = True) -> Sent:
    id_ = b"r%d" % number
    one = ledger.entered(Sent(id_, KEY, "sender", number, key, id_, 1_000, once))
    one.attempts = 1
    return one


def stored(one: Sent, offset: int, **changes: object) -> DecodedRecord:
    fields = {"timestamp": one.timestamp, "key": one.key, "value": one.value, "headers": ((ID, one.id),)} | changes
    return DecodedRecord(offset, **fields)  # type: ignore[arg-type]


def acked(ledger: Ledger, one: Sent, offset: int) -> None:
    ledger.acked(one, offset, life=ledger.lives, now=1.0)


def audit(ledger: Ledger, *records: DecodedRecord, start: int = 0, end: int = 10) -> None:
    found = {record.offset: record for record in records}
    ledger.audited(KEY, found, start, end, expected=sorted(ledger.partition(KEY).known), quiet=True)


def test_what_was_acknowledged_and_is_there_is_no_violation() -> None:
    ledger = new_ledger()
    first, second = sent(ledger, 1), sent(ledger, 2)
    acked(ledger, first, 0)
    audit(ledger, stored(first, 0), stored(second, 1), end=2)
    ledger.found({KEY: 2}, START, lossy=True)


@pytest.mark.parametrize(
    ("invariant", "plant"),
    [
        ("I1", lambda ledger, one, _: (acked(ledger, one, 0), audit(ledger))),
        ("I1", lambda ledger, one, _: (acked(ledger, one, 3), ledger.found({KEY: 3}, START, lossy=True))),
        ("I1", lambda ledger, one, _: (acked(ledger, one, 0), audit(ledger, start=1))),
        ("I2", lambda ledger, one, two: (acked(ledger, one, 0), acked(ledger, two, 0))),
        ("I2", lambda ledger, one, _: ledger.read(OTHER, stored(one, 0), life=0)),
        ("I2", lambda ledger, one, _: ledger.read(KEY, stored(one, 0, headers=((ID, b"nobody"),)), life=0)),
        ("I3", lambda ledger, one, _: (acked(ledger, one, 0), acked(ledger, one, 1))),
        ("I3", lambda ledger, one, _: audit(ledger, stored(one, 0), stored(one, 1))),
        (
            "I9",
            lambda ledger, one, two: (
                acked(ledger, two, 0),
                acked(ledger, one, 1),
                audit(ledger, stored(two, 0), stored(one, 1)),
            ),
        ),
        ("I10", lambda ledger, one, _: (ledger.refused(one, "no"), ledger.read(KEY, stored(one, 0), life=0))),
        ("I10", lambda ledger, one, _: (ledger.read(KEY, stored(one, 0), life=0), ledger.refused(one, "no"))),
        ("I23", lambda ledger, one, _: ledger.read(KEY, stored(one, 0, value=b"other"), life=0)),
        ("I23", lambda ledger, one, _: ledger.read(KEY, stored(one, 0, timestamp=7), life=0)),
    ],
)
def test_planted_anomaly_is_found(invariant, plant) -> None:
    ledger = new_ledger()
    with pytest.raises(Violation) as found:
        plant(ledger, sent(ledger, 1), sent(ledger, 2))
    assert found.value.invariant == invariant


def test_newest_record_of_a_key_must_survive_the_cleaner() -> None:
    ledger = new_ledger(cleanup_policy="compact")
    old, new = sent(ledger, 1, key=b"k"), sent(ledger, 2, key=b"k")
    acked(ledger, old, 0)
    acked(ledger, new, 1)
    audit(ledger, stored(new, 1), end=2)
    with pytest.raises(Violation) as found:
        audit(ledger, stored(old, 0), end=2)
    assert found.value.invariant == "I20"


def test_without_syncs_a_power_loss_may_take_back_and_a_kill_may_not() -> None:
    ledger = new_ledger(flush_messages="1000")
    one = sent(ledger, 1)
    acked(ledger, one, 0)
    with pytest.raises(Violation):
        ledger.found({KEY: 0}, START, lossy=False)
    ledger.lives += 1
    ledger.found({KEY: 0}, START, lossy=True)
    ledger.acked(one, 0, life=0, now=2.0)  # An answer from before.
    audit(ledger, end=0)


@pytest.mark.parametrize("is_synced", [False, True])
def test_a_producer_may_be_forgotten_with_what_retention_and_a_power_loss_took(is_synced: bool) -> None:
    """The segment had expired, and its records and the producer's state were not on the disk yet."""
    ledger = new_ledger(flush_messages="1" if is_synced else "1000", retention_ms="8000")
    one = sent(ledger, 1)
    acked(ledger, one, 0)
    ledger.lives += 1
    ledger.found({KEY: 5}, {KEY: 5}, lossy=True)
    if is_synced:
        with pytest.raises(Violation, match="I3"):
            acked(ledger, one, 5)
    else:
        acked(ledger, one, 5)


def test_second_attempt_without_an_answer_leaves_everything_open() -> None:
    ledger = new_ledger()
    one = sent(ledger, 1)
    one.attempts = 2
    ledger.refused(one, "no")
    ledger.read(KEY, stored(one, 0), life=0)


def test_a_reader_that_skips_is_found() -> None:
    ledger = new_ledger()
    for number in range(3):
        acked(ledger, sent(ledger, number), number)
    ledger.went_on(KEY, 0, 0, committed=False, life=0)
    ledger.went_on(KEY, 1, 1, committed=True, life=0)
    with pytest.raises(Violation, match="I8"):
        ledger.went_on(KEY, 1, 2, committed=False, life=0)
    ledger.partition(KEY).start_asked = 2  # Somebody deleted them.
    ledger.went_on(KEY, 0, 2, committed=False, life=0)


def test_a_reader_may_pass_over_what_was_compacted_or_expired() -> None:
    for settings in ({"cleanup_policy": "compact"}, {"retention_ms": "8000"}):
        ledger = new_ledger(**settings)
        for number in range(3):
            acked(ledger, sent(ledger, number), number)
        ledger.went_on(KEY, 0, 2, committed=False, life=0)


def test_what_went_with_its_disk_is_not_missed_and_old_answers_do_not_count() -> None:
    ledger = new_ledger()
    one, other, new = sent(ledger, 1), sent(ledger, 2), sent(ledger, 3)
    acked(ledger, one, 0)
    ledger.emptied([KEY])
    ledger.lives += 1
    ledger.found({KEY: 0}, START, lossy=True)
    ledger.acked(other, 0, life=0, now=2.0)  # From before.
    acked(ledger, new, 0)
    audit(ledger, stored(new, 0), end=1)
    with pytest.raises(Violation, match="I1"):
        ledger.found({KEY: 0}, START, lossy=True)
