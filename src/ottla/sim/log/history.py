"""The expected contents of a log, derived from the requests to it, without using the log's code.

Rule 1: a batch is recorded before it is sent, because a crash may come between the write and the response.
Rule 2: the durable part is a prefix: everything before `durable_end` was covered by a flush that returned.
Rule 3: only truncated batches are dropped: retention and compaction may be undone by a power loss, and then the old
        records must be correct.
Rule 4: an operation in progress (`truncating_to`, `retaining_at_ms`, `restarting`) may be found done, undone or half
        done.
"""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field, replace

from ottla.sim.records import DecodedBatch, DecodedRecord

SEQUENCES = 1 << 31


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings that decide what may be removed."""

    compact: bool = False
    delete: bool = True
    retention_ms: int = -1
    retention_bytes: int = -1
    delete_retention_ms: int = 0
    min_compaction_lag_ms: int = 0
    producer_expiration_ms: int = 86_400_000


@dataclass(frozen=True, slots=True)
class Cleaning:
    """One run of the cleaner: its time, and the first offset it must not touch."""

    at_ms: int
    limit: int
    high_watermark: int = 0
    """The high watermark at that time, which may have decided what it removed."""


@dataclass(slots=True)
class ProducerHistory:
    epoch: int = -1
    last_sequence: int = -1
    txn_first_offset: int | None = None
    last_timestamp: int = -1
    last_offset: int = -1


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """How the transaction of a batch ended, and where its marker is; a batch outside of transactions is committed."""

    committed: bool
    marker_offset: int = -1


@dataclass
class LogHistory:
    policy: Policy
    batches: list[DecodedBatch] = field(default_factory=list)
    start_offset: int = 0
    end_offset: int = 0
    durable_end: int = 0
    asked_start: int = 0
    """The largest offset of a DeleteRecords request."""
    latest_ms: int = 0
    """The latest wall-clock time so far."""
    cleanings: list[Cleaning] = field(default_factory=list)
    unanswered: DecodedBatch | None = None
    truncating_to: int | None = None
    retaining_at_ms: int | None = None
    restarting: bool = False
    forgotten: dict[int, int] = field(default_factory=dict)
    """Producers that the log was seen without, and the offset before which nothing of them need be known."""
    before_retention: tuple[DecodedBatch, ...] = ()
    """The batches in the log when retention began: removed ones count neither for its size nor for its age."""

    def copy(self) -> "LogHistory":
        """A copy that may diverge; batches are immutable and shared."""
        return replace(
            self,
            batches=list(self.batches),
            cleanings=list(self.cleanings),
            forgotten=dict(self.forgotten),
        )

    # Events.

    def sending(self, batch: DecodedBatch) -> None:
        self.unanswered = batch

    def answered(self, *, accepted: bool) -> None:
        """Record that the batch in flight was appended or refused."""
        batch, self.unanswered = self.unanswered, None
        if accepted and batch is not None:
            self._append(batch)

    def _append(self, batch: DecodedBatch) -> None:
        self.batches.append(batch)
        self.end_offset = batch.last_offset + 1

    def flushed(self, end_offset: int) -> None:
        self.durable_end = max(self.durable_end, min(end_offset, self.end_offset))

    def truncated(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch.last_offset < offset]
        self.end_offset = offset
        self.start_offset = min(self.start_offset, offset)
        self.asked_start = min(self.asked_start, offset)
        self.durable_end = min(self.durable_end, offset)
        self.cleanings = [Cleaning(run.at_ms, min(run.limit, offset), run.high_watermark) for run in self.cleanings]
        self.forgotten = {pid: min(before, offset) for pid, before in self.forgotten.items()}
        self.truncating_to = None

    def restarted(self, offset: int) -> None:
        """Record that everything was removed, and that the empty log begins at `offset`."""
        self.batches.clear()
        self.cleanings.clear()
        self.forgotten.clear()
        self.start_offset = self.end_offset = self.durable_end = self.asked_start = offset
        self.restarting = False

    def cleaned(self, at_ms: int, last_stable_offset: int, high_watermark: int = 0) -> None:
        """Record that the cleaner was started. It must stay below the last stable offset, and leave out records that
        are younger than the minimum lag."""
        limit = last_stable_offset
        youngest = at_ms - self.policy.min_compaction_lag_ms
        if self.policy.min_compaction_lag_ms:
            # Batches before the log start count as removed, whatever their age.
            left = (batch for batch in self.batches if batch.last_offset >= self.start_offset)
            limit = min([limit, *(batch.base_offset for batch in left if batch.max_timestamp > youngest)])
        self.cleanings.append(Cleaning(at_ms, limit, high_watermark))

    def found(self, end_offset: int, start_offset: int) -> None:
        """Adopt the bounds of the log that were found after a crash. The history continues from there."""
        if self.unanswered is not None and end_offset > self.end_offset:
            self._append(self.unanswered)
        self.unanswered = None
        self.batches = [batch for batch in self.batches if batch.last_offset < end_offset]
        self.end_offset = end_offset
        self.start_offset = start_offset
        self.durable_end = min(self.durable_end, end_offset)
        self.truncating_to = self.retaining_at_ms = None

    # Queries.

    def records(self) -> Iterator[tuple[DecodedRecord, DecodedBatch]]:
        for batch in self.batches:
            for record in batch.records:
                yield record, batch

    def outcomes(self) -> dict[int, BatchOutcome]:
        """Whether each data batch is committed, by its base offset. Batches of an open transaction are absent."""
        outcomes: dict[int, BatchOutcome] = {}
        open_batches: dict[int, list[DecodedBatch]] = {}
        for batch in self.batches:
            if batch.is_control:
                for sent in open_batches.pop(batch.producer_id, []):
                    outcomes[sent.base_offset] = BatchOutcome(batch.is_commit, batch.base_offset)
            elif batch.is_transactional:
                open_batches.setdefault(batch.producer_id, []).append(batch)
            else:
                outcomes[batch.base_offset] = BatchOutcome(committed=True)
        return outcomes

    def last_stable_offset(self, high_watermark: int, present: Container[int] | None = None) -> int:
        """The start of the first transaction whose marker is not below the watermark, or the watermark.

        Only batches with a `present` offset count: removed ones cannot be read too early.
        """
        outcomes = self.outcomes()
        for batch in self.batches:
            if batch.base_offset >= high_watermark:
                break
            outcome = outcomes.get(batch.base_offset)
            undecided = outcome is None or outcome.marker_offset >= high_watermark
            forgotten = batch.last_offset < self.forgotten.get(batch.producer_id, 0)
            gone = present is not None and not any(record.offset in present for record in batch.records)
            if undecided and not batch.is_control and not forgotten and not gone:
                return batch.base_offset
        return high_watermark

    def producers(self, *, remember_all: bool = False, since: int = 0) -> dict[int, ProducerHistory]:
        """The state of each producer after the last batch; `remember_all` includes producers forgotten meanwhile.

        Only batches that end at `since` or later count.
        """
        states: dict[int, ProducerHistory] = {}
        for batch in self.batches:
            if batch.producer_id < 0 or batch.last_offset < since:
                continue
            if not remember_all and batch.last_offset < self.forgotten.get(batch.producer_id, 0):
                continue
            state = states.setdefault(batch.producer_id, ProducerHistory())
            if batch.producer_epoch != state.epoch:
                state.epoch, state.last_sequence = batch.producer_epoch, -1
            state.last_timestamp = batch.max_timestamp
            state.last_offset = batch.last_offset
            if batch.is_control:
                state.txn_first_offset = None
                continue
            count = batch.last_offset - batch.base_offset
            state.last_sequence = (batch.base_sequence + count) % SEQUENCES
            if batch.is_transactional and state.txn_first_offset is None:
                state.txn_first_offset = batch.base_offset
        return states

    def may_forget(self, state: ProducerHistory, start_offset: int, lost_from: int | None = None) -> bool:
        """Whether a producer may be unknown: idle for long, or all its batches were removed.

        `lost_from` is given after a crash: batches from there to the log start may be lost, and with them an open
        transaction without any records left.
        """
        if lost_from is not None and lost_from <= state.last_offset < start_offset:
            return True
        if state.txn_first_offset is not None:
            return False
        silent_ms = self.latest_ms - state.last_timestamp
        return state.last_offset < start_offset or silent_ms >= self.policy.producer_expiration_ms

    def some_expired(self, producer_ids: Iterable[int]) -> bool:
        """Whether one may have been forgotten. When the clock goes back, an old snapshot brings it back."""
        states, oldest = self.producers(remember_all=True), self.latest_ms - self.policy.producer_expiration_ms
        return any(states[producer_id].last_timestamp <= oldest for producer_id in producer_ids)

    def may_start_at(self, start_offset: int) -> bool:
        """Whether retention, as it ran last or was requested, may have removed everything before `start_offset`."""
        if start_offset <= max(self.start_offset, self.asked_start):
            return True
        if self.retaining_at_ms is None or not self.policy.delete:
            return False
        # Retention by size removes younger segments first; then the following ones may be too old, and are removed too.
        oldest_kept = self.retaining_at_ms - self.policy.retention_ms
        left = sum(batch.size for batch in self.before_retention)
        for batch in self.before_retention:
            if batch.base_offset >= start_offset:
                break
            left -= batch.size
            too_old = self.policy.retention_ms >= 0 and batch.max_timestamp < oldest_kept
            if not too_old and not 0 <= self.policy.retention_bytes <= left:
                return False
        return self.policy.retention_ms >= 0 or 0 <= self.policy.retention_bytes <= left
