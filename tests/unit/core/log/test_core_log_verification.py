"""The first batch of a transaction needs the word of its coordinator (KIP-890, KAFKA-14402)."""

import pytest
from core_log_samples import NOW, data, end

from ottla.core.log.producers import AppendOrigin, Producers, Verification
from ottla.kernel import BatchHeader
from ottla.wire.errors import Error, Refused

P = 7


def begin(producers: Producers, *, epoch: int = 0, sequence: int = 0, version_2: bool = False) -> Verification:
    begun = producers.begin_verification(P, epoch, sequence, raises_epoch=version_2, now_ms=NOW)
    assert begun is not None, "no transaction is open"
    return begun


def append(producers: Producers, batch: BatchHeader, verification: Verification | None) -> None:
    producers.check(batch, AppendOrigin.CLIENT, batch.base_offset, verification)
    producers.replay(batch, None)


def refusal(producers: Producers, batch: BatchHeader, verification: Verification | None) -> Error:
    with pytest.raises(Refused) as refused:
        append(producers, batch, verification)
    return refused.value.error


def in_transaction(offset: int, sequence: int, epoch: int = 0) -> BatchHeader:
    return data(offset, P, sequence, epoch=epoch, transactional=True)


def test_a_transaction_opens_with_a_verification_only() -> None:
    """Otherwise a late batch opens a transaction that nobody ends, and the last stable offset stands still."""
    producers = Producers("t-0")
    assert refusal(producers, in_transaction(0, 0), None) is Error.INVALID_TXN_STATE
    append(producers, in_transaction(0, 0), begin(producers))
    assert producers.begin_verification(P, 0, 1, raises_epoch=False, now_ms=NOW) is None, "it is open now"
    append(producers, in_transaction(1, 1), None)


def test_a_marker_voids_what_the_coordinator_said_before_it() -> None:
    """The answer may be about the transaction that the marker ended (the ABA problem of KIP-890)."""
    producers = Producers("t-0")
    before = begin(producers)
    producers.replay(*end(0, P, commit=False))
    assert refusal(producers, in_transaction(1, 0), before) is Error.INVALID_TXN_STATE
    begin(producers)
    assert refusal(producers, in_transaction(1, 0), before) is Error.INVALID_TXN_STATE


def test_in_version_2_the_marker_of_the_last_transaction_leaves_the_next_one_alone() -> None:
    """It has the epoch that the client goes on with, whose first batch may overtake it."""
    producers = Producers("t-0")
    append(producers, in_transaction(0, 0), begin(producers, version_2=True))
    following = begin(producers, epoch=1, version_2=True)
    producers.replay(*end(1, P, commit=True, epoch=1))
    append(producers, in_transaction(2, 0, epoch=1), following)


def test_in_version_2_a_late_batch_of_the_transaction_before_is_fenced() -> None:
    """Its epoch is over with the marker (KAFKA-14402)."""
    producers = Producers("t-0")
    append(producers, in_transaction(0, 0), begin(producers, version_2=True))
    producers.replay(*end(1, P, commit=False, epoch=1))
    with pytest.raises(Refused) as refused:
        begin(producers, epoch=0, sequence=1, version_2=True)
    assert refused.value.error is Error.INVALID_PRODUCER_EPOCH


def test_in_version_2_a_transaction_opens_with_sequence_0() -> None:
    """An epoch of its own begins at 0: anything else means that the first batch is still on its way."""
    producers = Producers("t-0")
    verification = begin(producers, sequence=3, version_2=True)
    assert refusal(producers, in_transaction(0, 3), verification) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_of_batches_that_wait_for_the_same_answer_the_earliest_comes_first() -> None:
    producers = Producers("t-0")
    second = begin(producers, sequence=5)
    assert begin(producers, sequence=4) is second
    assert refusal(producers, in_transaction(0, 5), second) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(producers, in_transaction(0, 4), second)
    append(producers, in_transaction(1, 5), second)


def test_a_duplicate_needs_no_verification() -> None:
    """It is in the log: whoever sends it again after a lost answer hears the same."""
    producers = Producers("t-0")
    append(producers, in_transaction(0, 0), begin(producers))
    producers.replay(*end(1, P, commit=True))
    assert producers.check(in_transaction(0, 0), AppendOrigin.CLIENT, 2, None) is not None


def test_a_verification_that_nobody_uses_expires() -> None:
    producers = Producers("t-0")
    unused = begin(producers)
    producers.expire(NOW + 1_000, 1_000)
    assert refusal(producers, in_transaction(0, 0), unused) is Error.INVALID_TXN_STATE
