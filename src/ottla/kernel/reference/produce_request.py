"""Decodes ordinary Produce requests from their frames, and checks and numbers their batches, in one call.

    request header | transactional id | acks 2 | timeout 4 | topics: name or id | partitions: index 4 | records

Rule 1: consecutive frames are taken until one is incomplete or not ordinary. The caller decodes that one with the codec
        and handles it alone, which also finds the error. For a request that is taken, the codec would decode the same
        fields.
Rule 2: a request is ordinary if its version is known, it has no transactional id, no tagged fields and no bytes after
        its end, acks is -1, 0 or 1, all topics are known, and it names up to 256 partitions, each once.
Rule 3: each partition has one batch, which `check_produced` accepts and does not compress again. Batches of
        transactions are not ordinary, nor is zstd before version 7.
Rule 4: each batch fits into the place of its partition. A producer with an id sends its next sequence. If a place or a
        sequence that the first request needs is missing, nothing is taken, and the result names what the caller has to
        provide.
Rule 5: a request is taken as a whole or not at all. Its batches are numbered and stamped in the received buffer. The
        result has the new places and sequences; the arguments are not changed.
Rule 6: the responses are encoded as the codec encodes them, and say that the batches were appended. The caller sends
        them after it has written the batches. A request with acks=0 has no response.
Rule 7: once `bytes_max` bytes of records were checked, no further batch is checked. Once `batches_max` batches were
        taken, no further request is taken.
"""

from struct import Struct
from typing import Final, NamedTuple

from ottla.kernel.batch import (
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    Codec,
    increment_sequence,
    pack_header,
    read_header,
)
from ottla.kernel.errors import CorruptBatch, TakesLong
from ottla.kernel.reference.produce import check_counted
from ottla.kernel.values import ProduceAsk, ProducedPart, ProduceRules, ProduceTopic
from ottla.wire.errors import Refused
from ottla.wire.runtime import uvarint

_PRODUCE: Final = 0
_VERSIONS: Final = range(3, 14)
_FLEXIBLE_SINCE: Final = 9
_TOPIC_IDS_SINCE: Final = 13
_ZSTD_SINCE: Final = 7
_TOPIC_ID_BYTES: Final = 16
_BATCHES_MAX: Final = 256
_LOG_START_SINCE: Final = 5
_RECORD_ERRORS_SINCE: Final = 8
_NO_ERROR: Final = bytes(2)
_NO_THROTTLE: Final = bytes(4)
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_VARINT_BYTES_MAX: Final = 5


class _Extraordinary(Exception):
    """The request is not ordinary, so the codec has to decode it."""


def take_produce_requests(
    data: memoryview,
    position: int,
    by_name: dict[bytes, ProduceTopic],
    by_id: dict[bytes, ProduceTopic],
    now_ms: int,
    batches_max: int,
    bytes_max: int,
) -> tuple[int, bytes, list[ProducedPart], list[ProduceAsk]]:
    """Take the ordinary requests from `position` on, which is where the size of the first frame is.

    Returns the position after them, their encoded responses, the batches of each partition, and the places and
    sequences that the caller has to provide before the first request can be taken. A topic may be in `by_name` and in
    `by_id`; both entries then share their places."""
    start, batches, answers = position, 0, bytearray()
    parts: dict[tuple[int, int], _Part] = {}
    while batches < batches_max:
        try:
            outline = _outline(data, position)
            known = by_id if outline.version >= _TOPIC_IDS_SINCE else by_name
            found, asks = _find(data, outline, known, parts)
            if asks:
                return position, bytes(answers), _given(data, parts), asks if position == start else []
            headers, bytes_max = _check_all(data, outline, known, now_ms, bytes_max)
        except _Extraordinary:
            break
        if not all(part.takes(header) for part, header in zip(found, headers, strict=True)):
            break
        places = [place for _, partitions in outline.topics for _, place, _ in partitions]
        numbered = [part.add(header, at) for part, header, at in zip(found, headers, places, strict=True)]
        _add_answer(
            answers, outline, [(*told, part.log_start_offset) for told, part in zip(numbered, found, strict=True)]
        )
        position = outline.end
        batches += len(found)
    return position, bytes(answers), _given(data, parts), []


class _Part:
    """A partition that the requests name: its next place, the sequences of its producers, and the batches taken."""

    def __init__(self, topic: ProduceTopic, index: int) -> None:
        self._topic, self._index, self._place = topic.topic, index, topic.places[index]
        self._known: dict[int, tuple[int, int]] = {}
        self._batches: list[tuple[int, BatchHeader]] = []
        self.log_start_offset = self._place.log_start_offset

    def knows(self, producer_id: int) -> bool:
        """Whether the next sequence of the producer is known."""
        if producer_id not in self._known and producer_id in self._place.sequences:
            self._known[producer_id] = self._place.sequences[producer_id]
        return producer_id in self._known

    def takes(self, header: BatchHeader) -> bool:
        place = self._place
        return (
            place.batches_left > 0
            and place.bytes_left >= header.size
            and place.latest_timestamp >= header.max_timestamp
            and place.offset_max >= place.next_offset + header.last_offset_delta
            and (
                not header.has_producer
                or self._known[header.producer_id] == (header.producer_epoch, header.base_sequence)
            )
        )

    def add(self, header: BatchHeader, at: int) -> tuple[int, int]:
        """Take a batch, which begins at `at` in the buffer; returns its base offset and its log append time."""
        place = self._place
        header = header.numbered(place.next_offset, place.leader_epoch)
        self._batches.append((at, header))
        self._place = place._replace(
            next_offset=header.next_offset,
            bytes_left=place.bytes_left - header.size,
            batches_left=place.batches_left - 1,
        )
        if header.has_producer:
            next_sequence = increment_sequence(header.base_sequence, header.count)
            self._known[header.producer_id] = header.producer_epoch, next_sequence
        return header.base_offset, header.append_time

    def given(self, data: memoryview) -> ProducedPart | None:
        """Stamp the batches in the buffer and return the result for this partition; None if no batch was taken."""
        for at, header in self._batches:
            data[at : at + HEADER_SIZE] = pack_header(header)
        headers = [header for _, header in self._batches]
        batches = [data[at : at + header.size] for at, header in self._batches]
        known = [(producer_id, *sequence) for producer_id, sequence in self._known.items()]
        return (self._topic, self._index, self._place, headers, batches, known) if headers else None


def _given(data: memoryview, parts: dict[tuple[int, int], _Part]) -> list[ProducedPart]:
    given = [part.given(data) for part in parts.values()]
    return [part for part in given if part is not None]


def _find(
    data: memoryview, outline: "_Outline", known: dict[bytes, ProduceTopic], parts: dict[tuple[int, int], _Part]
) -> tuple[list[_Part], list[ProduceAsk]]:
    """The partitions of a request, and the places and sequences that are missing."""
    found: list[_Part] = []
    asks: list[ProduceAsk] = []
    for name, partitions in outline.topics:
        topic = known.get(name)
        if topic is None:
            raise _Extraordinary
        for index, start, stop in partitions:
            if stop - start < HEADER_SIZE:
                raise _Extraordinary
            _, _, _, _, _, _, _, _, _, producer_id, epoch, sequence, _ = HEADER.unpack_from(data, start)
            key = id(topic.places), index
            if key not in parts and index in topic.places:
                parts[key] = _Part(topic, index)
            part = parts.get(key)
            if part is not None:
                found.append(part)
            if part is None or (producer_id >= 0 and not part.knows(producer_id)):
                asks.append((topic.topic, index, producer_id, epoch, sequence))
    return found, asks


_Named = list[tuple[bytes, list[tuple[int, int, int]]]]
"""Topics by name or id, and for each the partitions: index, and the positions where the batch begins and ends."""


class _Outline(NamedTuple):
    """The fields of a request, and the positions of its batches, which are not read yet."""

    end: int
    version: int
    correlation_id: int
    acks: int
    topics: _Named


def _check_all(
    data: memoryview, outline: _Outline, known: dict[bytes, ProduceTopic], now_ms: int, bytes_left: int
) -> tuple[list[BatchHeader], int]:
    """Check all batches of a request; returns their headers, and the number of bytes that may still be checked."""
    headers: list[BatchHeader] = []
    for topic, partitions in outline.topics:
        for _, start, stop in partitions:
            if bytes_left <= 0:
                raise _Extraordinary
            header, unpacked = _check(data[start:stop], outline.version, known[topic].rules, now_ms)
            bytes_left -= unpacked
            headers.append(header)
    return headers, bytes_left


def _add_answer(answers: bytearray, outline: _Outline, offsets: list[tuple[int, int, int]]) -> None:
    """Append the encoded response. `offsets` has the base offset, log append time and log start offset per batch."""
    if not outline.acks:
        return
    version, left = outline.version, iter(offsets)
    is_flexible = version >= _FLEXIBLE_SINCE
    tags = b"\0" if is_flexible else b""
    told = Struct(">qqq" if version >= _LOG_START_SINCE else ">qq")
    ending = tags
    if version >= _RECORD_ERRORS_SINCE:
        ending = b"\1\0\0" if is_flexible else b"\0\0\0\0\xff\xff"  # No record errors, and no message.
    start = len(answers)
    answers += _INT32.pack(0) + _INT32.pack(outline.correlation_id) + tags + _count(len(outline.topics), is_flexible)
    for topic, partitions in outline.topics:
        if version < _TOPIC_IDS_SINCE:
            answers += uvarint(len(topic) + 1) if is_flexible else _INT16.pack(len(topic))
        answers += topic + _count(len(partitions), is_flexible)
        for index, _, _ in partitions:
            offsets_of = next(left)[: 3 if version >= _LOG_START_SINCE else 2]
            answers += _INT32.pack(index) + _NO_ERROR + told.pack(*offsets_of) + ending
        answers += tags
    answers += _NO_THROTTLE + tags
    _INT32.pack_into(answers, start, len(answers) - start - _INT32.size)


def _count(number: int, is_flexible: bool) -> bytes:
    return uvarint(number + 1) if is_flexible else _INT32.pack(number)


def _check(batch: memoryview, version: int, rules: ProduceRules, now_ms: int) -> tuple[BatchHeader, int]:
    """Check a batch; returns its corrected header, and the number of bytes of its uncompressed records."""
    if len(batch) < HEADER_SIZE or batch[MAGIC_AT] != MAGIC:
        raise _Extraordinary
    try:
        sent = read_header(batch)
        codec = sent.attributes & CODEC_MASK
        if (
            sent.is_transactional
            or (rules.codec is not None and rules.codec != codec)
            or (version < _ZSTD_SINCE and codec == Codec.ZSTD)
        ):
            raise _Extraordinary
        # A copy, because the check corrects the header in place, and the request may not be taken.
        checked, unpacked = check_counted(bytearray(batch), rules, now_ms)
    except (CorruptBatch, Refused, TakesLong):
        raise _Extraordinary from None
    if checked.recompressed:
        raise _Extraordinary
    return checked.header, unpacked


def _outline(data: memoryview, position: int) -> _Outline:
    reader = _Reader(data, position)
    size = reader.int32()
    end = position + _INT32.size + size
    if size < 0 or end > len(data):
        raise _Extraordinary
    reader.data = data[:end]
    api_key, version, correlation_id = reader.int16(), reader.int16(), reader.int32()
    if api_key != _PRODUCE or version not in _VERSIONS:
        raise _Extraordinary
    _skip_client_id(reader)
    reader.is_flexible = version >= _FLEXIBLE_SINCE
    reader.skip_no_tags()
    if not reader.is_null_string():
        raise _Extraordinary  # A transactional id.
    acks = reader.int16()
    if acks not in (-1, 0, 1):
        raise _Extraordinary
    reader.int32()  # The time-out.
    topics: _Named = []
    left = _BATCHES_MAX
    for _ in range(reader.count()):
        name = reader.take(_TOPIC_ID_BYTES) if version >= _TOPIC_IDS_SINCE else reader.string()
        count = reader.count()
        left -= count
        if left < 0:
            raise _Extraordinary
        partitions = []
        for _ in range(count):
            index, length = reader.int32(), reader.length()
            start = reader.position
            reader.skip(length)
            partitions.append((index, start, reader.position))
            reader.skip_no_tags()
        reader.skip_no_tags()
        topics.append((name, partitions))
    reader.skip_no_tags()
    places = [(name, index) for name, partitions in topics for index, _, _ in partitions]
    if reader.position != end or len(set(places)) != len(places):
        raise _Extraordinary
    return _Outline(end, version, correlation_id, acks, topics)


def _skip_client_id(reader: "_Reader") -> None:
    length = reader.int16()
    if length >= 0:
        try:
            str(reader.take(length), "utf-8")
        except UnicodeDecodeError:
            raise _Extraordinary from None
    elif length != -1:
        raise _Extraordinary


class _Reader:
    """Reads the fields of a message one after the other. Raises _Extraordinary if a field is incomplete."""

    def __init__(self, data: memoryview, position: int) -> None:
        self.data = data
        self.position = position
        self.is_flexible = False

    def skip(self, length: int) -> None:
        self.position += length
        if self.position > len(self.data):
            raise _Extraordinary

    def take(self, length: int) -> bytes:
        start = self.position
        self.skip(length)
        return bytes(self.data[start : self.position])

    def int16(self) -> int:
        start = self.position
        self.skip(_INT16.size)
        value: int = _INT16.unpack_from(self.data, start)[0]
        return value

    def int32(self) -> int:
        start = self.position
        self.skip(_INT32.size)
        value: int = _INT32.unpack_from(self.data, start)[0]
        return value

    def uvarint(self) -> int:
        """Read an unsigned varint. Raises _Extraordinary if it is longer than necessary."""
        value = 0
        for number in range(_VARINT_BYTES_MAX):
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << 7 * number
            if byte < 0x80:
                if number and not byte:
                    break
                return value
        raise _Extraordinary

    def skip_no_tags(self) -> None:
        """Skip the empty tag section at the end of a structure. Raises _Extraordinary if it has tagged fields."""
        if self.is_flexible and self.take(1) != b"\0":
            raise _Extraordinary

    def is_null_string(self) -> bool:
        return self.uvarint() == 0 if self.is_flexible else self.int16() == -1

    def string(self) -> bytes:
        """Read a string. Raises _Extraordinary if it is null."""
        length = self.uvarint() - 1 if self.is_flexible else self.int16()
        if length < 0:
            raise _Extraordinary
        return self.take(length)

    def length(self) -> int:
        """Read the size of records, or the number of elements of an array."""
        length = self.uvarint() - 1 if self.is_flexible else self.int32()
        if length < 0:
            raise _Extraordinary
        return length

    def count(self) -> int:
        """Read the number of elements of an array: at least one, and not more than there are bytes."""
        count = self.length()
        if not 1 <= count <= len(self.data) - self.position:
            raise _Extraordinary
        return count
