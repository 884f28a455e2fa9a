"""The writing clients: plain, idempotent and transactional producers, and the coordinator that ends transactions.

They keep no state but a counter: the next sequence is derived from the history, as a client that received every
response would know it. Every value is sent once, so that a duplicate record is detected.
"""

from dataclasses import dataclass, replace
from random import Random

from ottla.sim.log.history import SEQUENCES, LogHistory, ProducerHistory
from ottla.sim.log.swarm import Swarm
from ottla.sim.records import (
    DELETE_HORIZON,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
    DecodedBatch,
    DecodedRecord,
    decode,
    encode,
    encode_marker,
)

IDEMPOTENT = (100, 101, 102)
TRANSACTIONS = (200, 201)
OLDEST_MS = 30_000


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A batch to send: its bytes, and its decoded form at offset 0."""

    data: bytes
    batch: DecodedBatch

    def stored_at(self, base_offset: int, leader_epoch: int, append_time: int | None) -> DecodedBatch:
        """The batch as it must be found; `append_time` is the broker's time under LogAppendTime."""
        batch = self.batch
        records = tuple(
            replace(
                record,
                offset=base_offset + record.offset,
                timestamp=record.timestamp if append_time is None else append_time,
            )
            for record in batch.records
        )
        return replace(
            batch,
            base_offset=base_offset,
            last_offset=base_offset + batch.last_offset,
            leader_epoch=leader_epoch,
            records=records,
            attributes=batch.attributes | (0 if append_time is None else TIMESTAMP_TYPE),
            max_timestamp=batch.max_timestamp if append_time is None else append_time,
        )


class Senders:
    def __init__(self, swarm: Swarm, random: Random) -> None:
        self._swarm = swarm
        self._random = random
        self._sent = 0

    def next(self, history: LogHistory, now_ms: int) -> PreparedBatch:
        """A batch that must be accepted."""
        producer_id = self._random.choice((-1, *IDEMPOTENT, *TRANSACTIONS))
        if producer_id < 0:
            return self._make(now_ms)
        state, known = (history.producers(remember_all=one).get(producer_id) for one in (True, False))
        epoch, sequence = 0, 0
        if state is not None:
            epoch, sequence = state.epoch, (state.last_sequence + 1) % SEQUENCES
            # A producer that may have been forgotten cannot know the expected sequence, and starts a new epoch.
            is_lost = known is not None and known.last_sequence != state.last_sequence
            if is_lost or history.may_forget(state, history.start_offset) or self._random.random() < 0.05:
                epoch, sequence = epoch + 1, 0
        return self._make(now_ms, producer_id, epoch, sequence)

    def again(self, history: LogHistory) -> DecodedBatch | None:
        """A batch that is in the log already, from a producer that did not get the response."""
        known = dict(self._known(history))
        sent = [batch for batch in history.batches if batch.producer_id in known and not batch.is_control]
        return self._random.choice(sent[-8:]) if sent else None

    def bad(self, history: LogHistory, now_ms: int) -> tuple[PreparedBatch, str] | None:
        """A batch that must be refused, and the reason."""
        known = self._known(history)
        if not known:
            return None
        producer_id, state = self._random.choice(known)
        wrong = self._random.choice(("gap", "old epoch", "new epoch", "corrupt"))
        if wrong == "gap":
            return self._make(now_ms, producer_id, state.epoch, _after(state, 7)), wrong
        if wrong == "old epoch":
            return self._make(now_ms, producer_id, state.epoch - 1, _after(state, 1)), wrong
        if wrong == "new epoch":
            return self._make(now_ms, producer_id, state.epoch + 1, 5), wrong
        outgoing = self._make(now_ms, producer_id, state.epoch, _after(state, 1))
        spoiled = bytearray(outgoing.data)
        spoiled[self._random.randrange(17, len(spoiled))] ^= 1 << self._random.randrange(8)
        return PreparedBatch(bytes(spoiled), outgoing.batch), wrong

    def _known(self, history: LogHistory) -> list[tuple[int, ProducerHistory]]:
        """Producers that the log must remember; one that it may forget may continue anyhow."""
        states = sorted(history.producers().items())
        return [
            (producer_id, state)
            for producer_id, state in states
            if state.last_sequence >= 0 and not history.may_forget(state, history.start_offset)
        ]

    def marker(self, history: LogHistory, now_ms: int) -> PreparedBatch | None:
        """The end of an open transaction."""
        open_now = [
            (pid, state) for pid, state in sorted(history.producers().items()) if state.txn_first_offset is not None
        ]
        if not open_now:
            return None
        producer_id, state = self._random.choice(open_now)
        data = encode_marker(self._random.random() < 0.5, producer_id, state.epoch, 0, now_ms)
        return PreparedBatch(data, decode(data))

    def resend(self, batch: DecodedBatch) -> bytes:
        """The bytes of a batch as its producer sent them."""
        first = batch.records[0].offset
        records = [replace(record, offset=record.offset - first) for record in batch.records]
        return encode(
            records,
            attributes=batch.attributes & TRANSACTIONAL & ~DELETE_HORIZON,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
        )

    def _make(self, now_ms: int, producer_id: int = -1, epoch: int = -1, sequence: int = -1) -> PreparedBatch:
        records = [self._record(delta, now_ms) for delta in range(self._random.randint(1, self._swarm.records_max))]
        data = encode(
            records,
            codec=self._random.choice(self._swarm.codecs),
            attributes=TRANSACTIONAL if producer_id in TRANSACTIONS else 0,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        return PreparedBatch(data, decode(data))

    def _record(self, delta: int, now_ms: int) -> DecodedRecord:
        self._sent += 1
        random = self._random
        key = b"key-%d" % random.randrange(self._swarm.keys)
        value = b"value-%d" % self._sent + b"." * random.choice((0, 0, 10, 100))
        age_ms = random.choice((0, 0, random.randrange(1_000), random.randrange(OLDEST_MS)))
        headers = (("header", b"%d" % self._sent),) if random.random() < 0.1 else ()
        tombstone = self._swarm.policy.compact and random.random() < 0.2
        return DecodedRecord(delta, now_ms - age_ms, key, None if tombstone else value, headers)


def _after(state: ProducerHistory, by: int) -> int:
    return (state.last_sequence + by) % SEQUENCES
