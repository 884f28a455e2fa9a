"""The batches of Produce requests that are alike, checked and numbered together.

A producer sends the same request over and over: only the correlation id and the records differ. When several have
arrived, what surrounds the batches need not be looked at one by one.

Rule 1: a request belongs to a run if every byte but its size, the correlation id, the records and their length is that
        of `pattern`, which begins with the API key and version and goes on after the correlation id; if it names one
        partition, and ends without tagged fields; and if its batch is fit to be appended as it stands.
Rule 2: batches of a producer with an id belong to a run if their sequences follow each other: if the first may be
        appended, so may the others. Batches of transactions belong to none.
Rule 3: whatever else there is ends the run before it: who asks for it alone is told what is wrong with it.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from ottla.kernel.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    NO_TIMESTAMP,
    BatchHeader,
    increment_sequence,
    pack_header,
    read_header,
)
from ottla.kernel.errors import CorruptBatch
from ottla.kernel.reference.produce import check_produced
from ottla.kernel.reference.varint import read_unsigned
from ottla.kernel.values import ProduceRules, Run
from ottla.wire.errors import Refused

_HEAD: Final = Struct(">i4si")  # Size, API key and version, correlation id.
_KIND: Final = 4
_ENDS: Final = bytes(3)  # Of a partition, its topic and the request, each without tagged fields.
_BATCHES_MAX: Final = 256


def check_run(
    data: memoryview,
    position: int,
    pattern: bytes,
    rules: ProduceRules,
    now_ms: int,
    base_offset: int,
    leader_epoch: int,
) -> Run:
    """The run of requests that begins at `position`; their headers are numbered from `base_offset` on.

    Nothing is written: who does not append them after all finds the batches as they were sent.
    """
    correlation_ids: list[int] = []
    batches: list[memoryview] = []
    headers: list[BatchHeader] = []
    while len(headers) < _BATCHES_MAX:
        request = _request(data, position, pattern)
        if request is None:
            break
        correlation_id, batch, end = request
        header = _check(batch, headers[-1] if headers else None, rules, now_ms)
        if header is None:
            break
        correlation_ids.append(correlation_id)
        batches.append(batch)
        headers.append(header.numbered(base_offset, leader_epoch))
        base_offset = headers[-1].next_offset
        position = end
    latest = max([header.max_timestamp for header in headers], default=NO_TIMESTAMP)
    return Run(position, sum(map(len, batches)), max(latest, NO_TIMESTAMP), correlation_ids, batches, headers)


def stamp_run(batches: Sequence[memoryview], headers: Sequence[BatchHeader]) -> None:
    """Write the headers of a run into its batches: what was set right, and what only the leader knows."""
    for batch, header in zip(batches, headers, strict=True):
        batch[:HEADER_SIZE] = pack_header(header)


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


def _check(batch: memoryview, before: BatchHeader | None, rules: ProduceRules, now_ms: int) -> BatchHeader | None:
    """The header of a batch that may follow `before`."""
    if len(batch) < HEADER_SIZE or batch[MAGIC_AT] != MAGIC:
        return None
    try:
        header = read_header(batch)
        if header.is_transactional or (rules.codec is not None and rules.codec != header.attributes & CODEC_MASK):
            return None
        if before is not None and not _follows(header, before):
            return None
        checked = check_produced(bytearray(batch), rules, now_ms)
    except (CorruptBatch, Refused):
        return None
    return None if checked.recompressed else checked.header


def _follows(header: BatchHeader, before: BatchHeader) -> bool:
    """Rule 2."""
    if header.producer_id != before.producer_id:
        return False
    if not header.has_producer:
        return True
    expected = increment_sequence(before.base_sequence, before.count)
    return header.producer_epoch == before.producer_epoch and header.base_sequence == expected
