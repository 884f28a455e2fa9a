"""The record-level part of compaction: which records stay, and the batch that is left.

Rule 1: a record stays if its offset is past the end of the offset map, or if it is the latest of its key. A record
        without a key is removed: it predates the topic's compaction.
Rule 2: a tombstone (null value) that is the latest of its key stays until the batch's delete horizon, which is set when
        the batch is first cleaned, so that readers have delete.retention.ms to see it. The same horizon keeps the
        marker of a transaction whose data is gone.
Rule 3: a batch keeps its base offset, last offset, sequence, epochs and timestamp type, however few records stay. A
        batch that loses nothing and needs no horizon is left byte for byte as it was.
Rule 4: a batch that loses all records is removed, unless it must record its producer's last sequence or the end of the
        cleaned range: then it stays as a header without records.
"""

from typing import Final

from ottla.kernel.batch import (
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    Codec,
    attributes_of,
)
from ottla.kernel.reference.build import BatchBuilder, assemble
from ottla.kernel.reference.layout import Span, check_claims, records_of, spans
from ottla.kernel.reference.offset_map import OffsetMap
from ottla.kernel.values import Filtered

_NONE_KEPT: Final = -1


def put_keys(
    offset_map: OffsetMap, buffer: Buffer, header: BatchHeader, position: int = 0, from_offset: int = 0
) -> bool:
    """Add the keys of a data batch from `from_offset` on. Returns False if the map is full and lacks the rest."""
    data = records_of(buffer, header, position)
    for offset, _, _, key, key_end, *_ in spans(data, header):
        if key_end >= 0 and offset >= from_offset and not offset_map.put(data[key:key_end], offset):
            return False
    if header.last_offset >= from_offset:
        offset_map.latest_offset = header.last_offset
    return True


def filter_batch(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    keep: OffsetMap,
    now_ms: int,
    delete_retention_ms: int,
    discard: bool = False,
    retain_empty: bool = False,
    marks_empty_txn: bool = False,
) -> Filtered:
    """The part of the batch at `position` that stays.

    `discard`: all its records are removed, because their transaction was aborted, or because it is a marker whose
    horizon has passed. `retain_empty`: the batch stays even without records. `marks_empty_txn`: it is the marker of a
    transaction without any data left, and is removed once its horizon has passed.
    """
    check_claims(header)
    if discard:
        return _without_records(header, header.count, retain_empty)
    data = records_of(buffer, header, position)
    kept, tombstones = _kept(data, header, keep, now_ms)
    dropped = header.count - len(kept)
    if not kept:
        return _without_records(header, dropped, retain_empty)
    horizon_ms = header.delete_horizon_ms
    if horizon_ms is None and (tombstones or marks_empty_txn):
        horizon_ms = now_ms + delete_retention_ms
    elif not dropped:
        batch = memoryview(buffer)[position : position + header.size]
        return _filtered(batch, header.max_timestamp, header.last_offset, len(kept), 0)
    return _with_records(data, header, kept, dropped, horizon_ms)


def _kept(data: bytes, header: BatchHeader, keep: OffsetMap, now_ms: int) -> tuple[list[Span], bool]:
    """The records that stay, and whether a tombstone is among them."""
    kept: list[Span] = []
    tombstones = False
    horizon_ms = header.delete_horizon_ms
    tombstones_stay = horizon_ms is None or now_ms < horizon_ms
    known_to, latest_of, is_control = keep.latest_offset, keep.get, header.is_control
    for span in spans(data, header):
        offset, _, _, key, key_end, _, value_end, _, _ = span
        if not (is_control or offset > known_to):
            if key_end < 0 or (value_end < 0 and not tombstones_stay):
                continue
            if offset < latest_of(data[key:key_end]):
                continue
        kept.append(span)
        if value_end < 0:
            tombstones = True
    return kept, tombstones


def _with_records(data: bytes, header: BatchHeader, kept: list[Span], dropped: int, horizon_ms: int | None) -> Filtered:
    builder = BatchBuilder(header.base_offset, base_timestamp=horizon_ms)
    for offset, timestamp, after_timestamp, *_, end in kept:
        builder.append_raw(offset - header.base_offset, timestamp, data[after_timestamp:end])
    codec = header.codec
    batch = builder.build(
        codec=codec,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        attributes=attributes_of(
            codec,
            header.timestamp_type,
            transactional=header.is_transactional,
            control=header.is_control,
            delete_horizon=horizon_ms is not None,
        ),
        last_offset_delta=header.last_offset_delta,
    )
    return _filtered(batch, builder.max_timestamp, header.last_offset, len(kept), dropped)


def _without_records(header: BatchHeader, dropped: int, retain: bool) -> Filtered:
    if not retain:
        return Filtered(None, 0, dropped, NO_TIMESTAMP, _NONE_KEPT)
    batch = assemble(
        b"",
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        attributes=attributes_of(
            Codec.NONE, header.timestamp_type, transactional=header.is_transactional, control=header.is_control
        ),
        last_offset_delta=header.last_offset_delta,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        count=0,
    )
    return _filtered(batch, header.max_timestamp, header.last_offset, 0, dropped)


def _filtered(batch: Buffer, max_timestamp: int, last_offset: int, kept: int, dropped: int) -> Filtered:
    return Filtered(batch, kept, dropped, max_timestamp, last_offset if max_timestamp != NO_TIMESTAMP else -1)
