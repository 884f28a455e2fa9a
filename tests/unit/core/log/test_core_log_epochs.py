"""Leader epochs against a list that remembers the epoch of every single offset."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.core.log.checkpoints import EpochStart
from ottla.core.log.epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET, LeaderEpochs

starts = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), max_size=8)


def naive(steps: list[tuple[int, int]]) -> list[EpochStart]:
    """Rule 1, word for word."""
    entries: list[EpochStart] = []
    for epoch, start in steps:
        known = [entry for entry in entries if entry.epoch == epoch]
        if known and known[-1] == entries[-1] and start >= known[-1].start_offset:
            continue
        entries = [entry for entry in entries if entry.epoch < epoch and entry.start_offset < start]
        entries.append(EpochStart(epoch, start))
    return entries


@given(starts)
def test_a_new_entry_removes_those_it_contradicts(steps: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs()
    for number, step in enumerate(steps):
        before = list(epochs.entries)
        assert epochs.assign(*step) == (naive(steps[: number + 1]) != before)
        assert epochs.entries == naive(steps[: number + 1])
        assert epochs.latest == (epochs.entries[-1].epoch if epochs.entries else UNDEFINED_EPOCH)


def test_no_epoch_is_not_noted() -> None:
    """Batches of old clients and of the simulator's first leader carry -1."""
    epochs = LeaderEpochs()
    assert not epochs.assign(-1, 5)
    assert epochs.entries == []


@given(starts, st.integers(0, 25))
def test_truncation_at_the_end_leaves_the_epochs_of_what_stays(steps: list[tuple[int, int]], end: int) -> None:
    epochs = LeaderEpochs(naive(steps))
    changed = epochs.truncate_end(end)
    assert epochs.entries == [entry for entry in naive(steps) if entry.start_offset < end]
    assert changed == (epochs.entries != naive(steps))


@given(starts, st.integers(0, 25))
def test_truncation_at_the_start_keeps_the_epoch_of_every_offset_left(steps: list[tuple[int, int]], start: int) -> None:
    entries = naive(steps)
    epochs, original = LeaderEpochs(entries), LeaderEpochs(entries)
    changed = epochs.truncate_start(start)
    assert changed == (epochs.entries != entries)
    for offset in range(start, 30):
        assert epochs.epoch_at(offset) == original.epoch_at(offset)
    covered = [entry for entry in entries if entry.start_offset <= start]
    if covered:
        assert epochs.entries[0] == EpochStart(covered[-1].epoch, start)


@given(starts, st.integers(0, 25))
def test_epoch_at_is_the_last_that_began_there(steps: list[tuple[int, int]], offset: int) -> None:
    epochs = LeaderEpochs(naive(steps))
    begun = [entry.epoch for entry in naive(steps) if entry.start_offset <= offset]
    assert epochs.epoch_at(offset) == (begun[-1] if begun else UNDEFINED_EPOCH)


@given(starts, st.integers(-1, 12))
def test_the_end_of_an_epoch_is_where_the_next_begins(steps: list[tuple[int, int]], asked: int) -> None:
    """A follower cuts its log there (KIP-101, KIP-279): one offset too far loses or keeps a wrong record."""
    entries, log_end = naive(steps), 40
    later = [entry for entry in entries if entry.epoch > asked]
    upto = [entry for entry in entries if entry.epoch <= asked]
    if asked >= 0 and upto and upto[-1].epoch == asked and not later:
        expected = EpochStart(asked, log_end)
    elif asked < 0 or not later:
        expected = EpochStart(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
    else:
        expected = EpochStart(upto[-1].epoch if upto else asked, later[0].start_offset)
    assert LeaderEpochs(entries).end_offset_of(asked, log_end) == expected
