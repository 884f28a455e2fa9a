"""The checks of a produced batch before it is appended, and the fields that the broker sets in it.

Rule 1: a producer sends exactly one batch per partition, at base offset 0, with as many records as offsets, and no
        control records. With a producer id it has a sequence.
Rule 2: the checksum is compared first: a fault under a correct checksum was sent that way, and is INVALID_RECORD or
        INVALID_TIMESTAMP; the client must not retry it.
Rule 3: every record is checked: its layout, its key in a compacted topic, its timestamp against
        message.timestamp.{before,after}.max.ms. All bad records are reported, not only the first.
Rule 4: under LogAppendTime the batch gets the broker's time; under CreateTime its max timestamp is corrected. Both
        happen in place, without touching the records.
Rule 5: a batch is rebuilt only to compress it differently (compression.type), or because its offset deltas are not 0,
        1, 2 ...: old clients wrote such batches, and two records must not share an offset. (Kafka repairs such a batch
        only if it is compressed.)
Rule 6: a caller that must not block limits the bytes of records to check (`at_once_max`). A batch that has more, or
        unpacks to more, or has an eighth of that and must be rebuilt, raises TakesLong and is to be checked in a
        thread.
"""

from struct import Struct
from typing import Final

from ottla.kernel.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CRC_AT,
    HEADER_SIZE,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    NO_TIMESTAMP,
    BatchHeader,
    Codec,
    TimestampType,
    attributes_of,
    read_header,
)
from ottla.kernel.errors import CorruptBatch, InvalidRecords, TakesLong
from ottla.kernel.reference.alike import DELTA_MAX, DELTA_MIN, skip_alike
from ottla.kernel.reference.build import BatchBuilder
from ottla.kernel.reference.checksum import batch_crc, crc_fault
from ottla.kernel.reference.compress import Bomb, allowance, decompress
from ottla.kernel.reference.layout import (
    check_claims,
    ends_early,
    records_of,
    skip_headers,
    spans,
    wrong_end,
    wrong_length,
)
from ottla.kernel.reference.varint import encode, read_unsigned
from ottla.kernel.reference.verdict import Faults, Window
from ottla.kernel.values import Checked, ProduceRules
from ottla.wire.errors import Error, Refused

_OFFSET: Final = Struct(">q")
_EPOCH: Final = Struct(">i")
_EPOCH_AT: Final = 12
_CRC: Final = Struct(">I")
_ATTRIBUTES: Final = Struct(">h")
_MAX_TIMESTAMP: Final = Struct(">q")
_MAX_TIMESTAMP_AT: Final = 35
_REBUILD_COST: Final = 8  # Compressing a batch takes about this many times as long as walking over it.


def check_produced(buffer: bytearray | memoryview, rules: ProduceRules, now_ms: int) -> Checked:
    """Check the one batch in `buffer`, and correct it in place.

    Raises CorruptBatch, InvalidRecords, or Refused with MESSAGE_TOO_LARGE; or TakesLong, by rule 6.
    """
    return check_counted(buffer, rules, now_ms)[0]


def check_counted(buffer: bytearray | memoryview, rules: ProduceRules, now_ms: int) -> tuple[Checked, int]:
    """Like `check_produced`; also returns the size of the uncompressed records."""
    view = memoryview(buffer)
    header = _only_batch(view)
    _check_header(header, rules)
    _check_size(header.size, rules, "")
    _check_length(header.size, rules)
    if fault := crc_fault(header, batch_crc(view, 0, header.size)):
        raise CorruptBatch(fault)
    try:
        return _check_records(view, header, rules, now_ms)
    except CorruptBatch as corrupt:  # Rule 2: the checksum was right.
        raise InvalidRecords(Error.INVALID_RECORD, corrupt.text) from None


def stamp(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into the batch at `position`; both lie outside the checksum."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + _EPOCH_AT, leader_epoch)


def _only_batch(view: memoryview) -> BatchHeader:
    if len(view) >= HEADER_SIZE and view[MAGIC_AT] == MAGIC:
        header = read_header(view)
        if header.size == len(view):
            return header
    return _odd_batch(view)


def _odd_batch(view: memoryview) -> BatchHeader:
    """Raises the error for bytes that are not one whole batch."""
    if len(view) <= MAGIC_AT:
        raise _invalid(f"{len(view)} bytes were sent for a partition; exactly one record batch is needed")
    if view[MAGIC_AT] < MAGIC:
        raise _invalid(f"magic is {view[MAGIC_AT]}; only record batches of magic {MAGIC} are accepted")
    size = int.from_bytes(view[LENGTH_AT:LOG_OVERHEAD], "big", signed=True) + LOG_OVERHEAD
    if size > len(view):
        raise _invalid(f"the batch takes {size} bytes, {len(view)} were sent")
    header = read_header(view)
    if size < len(view):
        raise _invalid(f"{len(view) - size} bytes follow the first batch; exactly one a partition is allowed")
    return header


def _check_header(header: BatchHeader, rules: ProduceRules) -> None:
    """Raises InvalidRecords if the header breaks rule 1."""
    if header.attributes & CODEC_MASK > Codec.ZSTD:
        raise _invalid(f"the batch names compression {header.attributes & CODEC_MASK}; 0 to {Codec.ZSTD:d} are known")
    if not rules.from_client:
        return
    if header.base_offset != 0:
        raise _invalid(f"base offset is {header.base_offset}; the broker assigns offsets, producers send 0")
    if header.last_offset_delta < 0:
        raise _invalid(f"last offset delta is {header.last_offset_delta}")
    if header.count <= 0:
        raise _invalid(f"the batch declares {header.count} records")
    if header.count != header.last_offset_delta + 1:
        raise _invalid(f"the batch declares {header.count} records and {header.last_offset_delta + 1} offsets")
    if header.is_control:
        raise _invalid("the batch is marked as control records, which clients may not write")
    if header.has_producer and header.base_sequence < 0:
        raise _invalid(f"producer {header.producer_id} sent sequence {header.base_sequence}")


def _check_size(size: int, rules: ProduceRules, when: str) -> None:
    if rules.max_message_bytes is not None and size > rules.max_message_bytes:
        raise Refused(
            Error.MESSAGE_TOO_LARGE,
            f"the record batch takes {size} bytes{when}; max.message.bytes allows {rules.max_message_bytes}",
        )


def _check_length(size: int, rules: ProduceRules, cost: int = 1) -> None:
    if rules.at_once_max is not None and size * cost > rules.at_once_max:
        raise TakesLong


def _unpacked(view: memoryview, header: BatchHeader, rules: ProduceRules) -> bytes:
    packed, most = view[HEADER_SIZE : header.size], rules.at_once_max
    if most is None or header.codec is Codec.NONE or most >= allowance(len(packed)):
        return records_of(view, header)
    try:
        return decompress(header.codec, packed, limit=most)
    except Bomb:
        raise TakesLong from None  # If it is a decompression bomb, the check in a thread finds that.


def _check_records(view: memoryview, header: BatchHeader, rules: ProduceRules, now_ms: int) -> tuple[Checked, int]:
    codec = header.codec
    data = _unpacked(view, header, rules)
    window = Window.of(
        header, rules.timestamp_type, rules.timestamp_before_max_ms, rules.timestamp_after_max_ms, now_ms
    )
    latest, in_order = _walk(data, header, window, rules.compacted)
    wanted = codec if rules.codec is None else rules.codec
    if header.is_control and codec is Codec.NONE:
        wanted = Codec.NONE  # Consumers read markers without decompressing.
    if wanted is not codec or not in_order:
        _check_length(len(data), rules, _REBUILD_COST)
        return _rebuild(data, header, rules, wanted, in_order, now_ms), len(data)
    max_timestamp = now_ms if rules.timestamp_type is TimestampType.LOG_APPEND_TIME else window.max_timestamp(latest)
    header = _set_max_timestamp(view, header, rules.timestamp_type, max_timestamp)
    return _checked(view, header, recompressed=False), len(data)


def _walk(data: bytes, header: BatchHeader, window: Window, key_needed: bool) -> tuple[int, bool]:
    """The largest timestamp delta, and whether offset deltas are 0, 1, 2 ...

    The only loop over records for every produced batch: like `spans`, without the tuples and with short varints in
    line.
    """
    check_claims(header)
    count, faults = header.count, None
    earliest, latest_allowed = window.deltas
    first, position, latest, in_order = 0, 0, NO_TIMESTAMP - window.base, True
    if count > 1 and earliest <= DELTA_MIN and latest_allowed >= DELTA_MAX:
        first, position, skipped_latest = skip_alike(data, count, key_needed=key_needed)
        latest = max(latest, skipped_latest) if first else latest
    try:
        for index in range(first, count):
            length = data[position]
            position += 1
            if length > 127:
                if (more := data[position]) < 128:
                    length += (more << 7) - 128
                    position += 1
                else:
                    length, position = read_unsigned(data, position - 1)
            end = position + (length >> 1)
            delta = data[position + 1]
            position += 2
            if delta > 127:
                delta, position = read_unsigned(data, position - 1, 10)
            delta = (delta >> 1) ^ -(delta & 1)
            if delta > latest_allowed or delta < earliest:
                delta = window.wrapped(delta)
                if delta > latest_allowed or delta < earliest:
                    faults = faults or Faults(window)
                    faults.timestamp(index, delta)
            if delta > latest:
                latest = delta
            offset = data[position]
            position += 1
            if offset > 127:
                if (more := data[position]) < 128:
                    offset += (more << 7) - 128
                    position += 1
                else:
                    offset, position = read_unsigned(data, position - 1)
            if offset != index << 1:
                in_order = False
            size = data[position]
            position += 1
            if size > 127:
                size, position = read_unsigned(data, position - 1)
            if not size & 1:
                position += size >> 1
            elif key_needed:
                faults = faults or Faults(window)
                faults.no_key(index)
            size = data[position]
            position += 1
            if size > 127:
                if (more := data[position]) < 128:
                    size += (more << 7) - 128
                    position += 1
                else:
                    size, position = read_unsigned(data, position - 1)
            if not size & 1:
                position += size >> 1
            position = position + 1 if data[position] == 0 else skip_headers(data, position)
            if position != end or length & 1:
                raise wrong_length(index, length, position - end)
    except IndexError:
        raise ends_early(data, count) from None
    if position != len(data):
        raise wrong_end(data, count, position)
    if faults is not None:
        faults.refuse_if_any()
    return latest, in_order


def _rebuild(
    data: bytes, header: BatchHeader, rules: ProduceRules, codec: Codec, in_order: bool, now_ms: int
) -> Checked:
    """The same records, numbered from 0 and compressed with `codec`."""
    builder = BatchBuilder()
    for index, (_, timestamp, after_timestamp, *_, end) in enumerate(spans(data, header)):
        if in_order:
            rest = data[after_timestamp:end]
        else:
            rest = encode(index) + data[read_unsigned(data, after_timestamp)[1] : end]
        builder.append_raw(index, timestamp, rest)
    by_broker = rules.timestamp_type is TimestampType.LOG_APPEND_TIME
    batch = builder.build(
        codec=codec,
        level=rules.level,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        attributes=attributes_of(
            codec, rules.timestamp_type, transactional=header.is_transactional, control=header.is_control
        ),
        append_time_ms=now_ms if by_broker else None,
    )
    _check_size(len(batch), rules, f" after compression with {codec.name.lower()}")
    view = memoryview(bytearray(batch))
    return _checked(view, read_header(view), recompressed=True)


def _set_max_timestamp(
    view: memoryview, header: BatchHeader, timestamp_type: TimestampType, max_timestamp: int
) -> BatchHeader:
    """Rule 4. Most batches have the correct one already and are not changed."""
    if header.timestamp_type is timestamp_type and header.max_timestamp == max_timestamp:
        return header
    attributes = attributes_of(
        header.codec,
        timestamp_type,
        transactional=header.is_transactional,
        control=header.is_control,
        delete_horizon=header.delete_horizon_ms is not None,
    )
    _ATTRIBUTES.pack_into(view, ATTRIBUTES_AT, attributes)
    _MAX_TIMESTAMP.pack_into(view, _MAX_TIMESTAMP_AT, max_timestamp)
    crc = batch_crc(view, 0, header.size)
    _CRC.pack_into(view, CRC_AT, crc)
    return header._replace(attributes=attributes, max_timestamp=max_timestamp, crc=crc)


def _checked(view: memoryview, header: BatchHeader, *, recompressed: bool) -> Checked:
    delta = header.last_offset_delta if header.max_timestamp != NO_TIMESTAMP else -1
    return Checked(view, header, header.max_timestamp, delta, recompressed)


def _invalid(text: str) -> InvalidRecords:
    return InvalidRecords(Error.INVALID_RECORD, text)
