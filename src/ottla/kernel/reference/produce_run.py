"""The batches of Produce requests that are alike, checked and numbered together.

A producer sends the same request over and over: only the correlation id and the records differ. When several have
arrived, what surrounds the batches need not be looked at one by one.

Rule 1: a request belongs to a run if every byte but its size, the correlation id, the records and their length is that
        of `pattern`, which begins with the API key and version and goes on after the correlation id; if it names one
        partition, and ends without tagged fields; and if its batch is fit to be appended as it stands.
Rule 2: batches of a producer with an id belong to a run if their sequences follow each other: if the first may be
        appended, so may the others. Batches of transactions belong to none.
Rule 3: whatever else there is ends the run before it, as does one that the segment has no room for: who asks for it
        alone is told what is wrong with it.
Rule 4: requests of several connections, and of one that comes again, may belong to one run; each has an exchange of its
        own. Nothing happens to the log between the beginning of a run and its end, so what is answered is known before
        it is true: the answers are to be held back until all is written.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from ottla.kernel.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    increment_sequence,
    pack_header,
    read_header,
)
from ottla.kernel.errors import CorruptBatch, TakesLong
from ottla.kernel.reference.produce import check_counted
from ottla.kernel.reference.varint import read_unsigned
from ottla.kernel.values import Exchange, ProduceRules, Room
from ottla.wire.errors import Refused

_HEAD: Final = Struct(">i4si")  # Size, API key and version, correlation id.
_KIND: Final = 4
_ENDS: Final = bytes(3)  # Of a partition, its topic and the request, each without tagged fields.
_BATCHES_MAX: Final = 256
_CORRELATION_ID: Final = Struct(">i")
_CORRELATION_ID_AT: Final = 4
_CHANGES: Final = Struct(">qqq")


class Run:
    """Batches that are going to be appended together, and what is answered then."""

    def __init__(
        self,
        rules: ProduceRules,
        room: Room,
        now_ms: int,
        base_offset: int,
        leader_epoch: int,
        log_start_offset: int,
        may_begin: Callable[[BatchHeader], bool],
    ) -> None:
        """`may_begin` is asked for the first batch of every producer with an id."""
        self.batches: list[memoryview] = []
        """Stamped, where they arrived."""
        self.headers: list[BatchHeader] = []
        self.size = 0
        """Of all the batches."""
        self.next_offset = base_offset
        self._rules, self._room, self._now_ms = rules, room, now_ms
        self._leader_epoch = leader_epoch
        self._log_start_offset = log_start_offset
        self._may_begin = may_begin

    def take(self, data: memoryview, position: int, exchange: Exchange) -> tuple[int, bytes] | None:
        """Add the requests from `position` on: where the one after them begins, and the answers to be given when all
        is written. None, and nothing has changed, where the first cannot be added."""
        changes_at = exchange.changes_at
        if not _CORRELATION_ID_AT + _CORRELATION_ID.size <= changes_at <= len(exchange.answer) - _CHANGES.size:
            raise ValueError(f"what changes has no place at {changes_at} of the answer")
        found: list[tuple[int, memoryview, BatchHeader]] = []
        next_offset, room = self.next_offset, self._room
        left = self._rules.at_once_max
        while len(found) < _BATCHES_MAX and (left is None or left > 0):
            request = _request(data, position, exchange.pattern)
            if request is None:
                break
            correlation_id, batch, end = request
            checked = self._check(batch, found[-1][2] if found else None)
            if checked is None:
                break
            header, unpacked = checked
            if left is not None:
                left -= unpacked
            header = header.numbered(next_offset, self._leader_epoch)
            if not _has_room(room, header):
                break
            room = room._replace(bytes=room.bytes - header.size, batches=room.batches - 1)
            next_offset = header.next_offset
            found.append((correlation_id, batch, header))
            position = end
        if not found:
            return None
        first = found[0][2]
        if first.has_producer and self._last_of(first) is None and not self._may_begin(first):
            return None
        self._room, self.next_offset = room, next_offset
        answers = bytearray()
        for correlation_id, batch, header in found:
            batch[:HEADER_SIZE] = pack_header(header)
            self.batches.append(batch)
            self.headers.append(header)
            self.size += header.size
            answers += self._answer(exchange, correlation_id, header)
        return position, bytes(answers)

    def _answer(self, exchange: Exchange, correlation_id: int, header: BatchHeader) -> bytes:
        answer = bytearray(exchange.answer)
        _CORRELATION_ID.pack_into(answer, _CORRELATION_ID_AT, correlation_id)
        _CHANGES.pack_into(answer, exchange.changes_at, header.base_offset, header.append_time, self._log_start_offset)
        return bytes(answer)

    def _check(self, batch: memoryview, before: BatchHeader | None) -> tuple[BatchHeader, int] | None:
        """The header of a batch that may follow `before`, and how many bytes of records it has."""
        if len(batch) < HEADER_SIZE or batch[MAGIC_AT] != MAGIC:
            return None
        rules = self._rules
        try:
            header = read_header(batch)
            if header.is_transactional or (rules.codec is not None and rules.codec != header.attributes & CODEC_MASK):
                return None
            earlier = before or self._last_of(header)
            if earlier is not None and not _follows(header, earlier):
                return None
            checked, unpacked = check_counted(bytearray(batch), rules, self._now_ms)
        except (CorruptBatch, Refused, TakesLong):
            return None
        return None if checked.recompressed else (checked.header, unpacked)

    def _last_of(self, header: BatchHeader) -> BatchHeader | None:
        """The last batch so far of the producer with an id that sent this one."""
        if not header.has_producer:
            return None
        return next((earlier for earlier in reversed(self.headers) if earlier.producer_id == header.producer_id), None)


def _has_room(room: Room, header: BatchHeader) -> bool:
    return (
        room.batches > 0
        and room.bytes >= header.size
        and room.latest_timestamp >= header.max_timestamp
        and room.last_offset >= header.last_offset
    )


def _request(data: memoryview, position: int, pattern: bytes) -> tuple[int, memoryview, int] | None:
    """Correlation id, batch and end of the request at `position`, if it is whole and like `pattern`."""
    at = position + _HEAD.size
    if at > len(data):
        return None
    size, kind, correlation_id = _HEAD.unpack_from(data, position)
    end = position + 4 + size
    if size < 0 or end > len(data) or kind != pattern[:_KIND]:
        return None
    request = data[:end]
    rest = pattern[_KIND:]
    if request[at : at + len(rest)] != rest:
        return None
    try:
        length, at = read_unsigned(request, at + len(rest))
    except (CorruptBatch, IndexError):
        return None
    batch_end = at + length - 1
    if length <= 1 or request[batch_end:] != _ENDS:
        return None
    return correlation_id, request[at:batch_end], end


def _follows(header: BatchHeader, before: BatchHeader) -> bool:
    """Rule 2."""
    if header.producer_id != before.producer_id:
        return False
    if not header.has_producer:
        return True
    expected = increment_sequence(before.base_sequence, before.count)
    return header.producer_epoch == before.producer_epoch and header.base_sequence == expected
