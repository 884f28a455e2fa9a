"""Headers, segments and logs for the tests of `core/log`, which never looks at a record's bytes."""

from collections.abc import Sequence
from typing import Any

from ottla.config import Config
from ottla.core.log.segment import Segment
from ottla.core.log.state import LogState
from ottla.kernel import HEADER_SIZE, BatchHeader, ControlType, EndTxnMarker

NOW = 1_700_000_000_000
TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x10, 0x20, 0x40
LOG_OVERHEAD = 12


def header(
    base_offset: int = 0,
    count: int = 1,
    *,
    size: int = HEADER_SIZE + 10,
    timestamp: int = NOW,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = 0,
    horizon_ms: int | None = None,
) -> BatchHeader:
    """The header of a batch of `count` records."""
    attributes = TRANSACTIONAL * transactional | CONTROL * control | DELETE_HORIZON * (horizon_ms is not None)
    base_timestamp = timestamp if horizon_ms is None else horizon_ms
    return BatchHeader(
        base_offset,
        size - LOG_OVERHEAD,
        leader_epoch,
        2,
        0,
        attributes,
        max(count, 1) - 1,
        base_timestamp,
        timestamp,
        producer_id,
        epoch,
        sequence,
        count,
    )


def data(base_offset: int, producer_id: int, sequence: int, count: int = 1, epoch: int = 0, **more: Any) -> BatchHeader:
    """A batch of an idempotent or transactional producer."""
    return header(base_offset, count, producer_id=producer_id, epoch=epoch, sequence=sequence, **more)


def end(
    base_offset: int,
    producer_id: int,
    *,
    commit: bool,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp: int = NOW,
) -> tuple[BatchHeader, EndTxnMarker]:
    """The batch that ends a transaction, and what it says."""
    batch = header(
        base_offset, producer_id=producer_id, epoch=epoch, transactional=True, control=True, timestamp=timestamp
    )
    return batch, EndTxnMarker(ControlType.COMMIT if commit else ControlType.ABORT, coordinator_epoch)


def config(**overrides: object) -> Config:
    """`config(segment_ms=5)` sets `segment.ms`; sizes of segments may be tiny."""
    names = {name.replace("_", "."): str(value) for name, value in overrides.items()}
    if "segment.bytes" in names:
        names["internal.segment.bytes"] = names.pop("segment.bytes")
    return Config.of(names)


def log_of(
    segments: Sequence[tuple[int, int]], end_offset: int, settings: Config | None = None, name: str = "t-0"
) -> LogState:
    """A log of (base offset, size) segments, all of it below the high watermark."""
    listed = [Segment(base_offset, size=size) for base_offset, size in segments]
    log = LogState(name, settings or Config.of(), listed, end_offset=end_offset)
    log.advance_high_watermark(end_offset)
    return log
