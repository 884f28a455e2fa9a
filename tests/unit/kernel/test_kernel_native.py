"""The native kernel against the reference, function by function: same bytes in, same answer or same refusal out."""

import copy
import subprocess
import sys
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_comparison import implementation_named, outcome, plain
from kernel_samples import NOW, T, batches, captured, produce_rules

from ottla.kernel import (
    BatchHeader,
    Codec,
    ControlType,
    CorruptBatch,
    InvalidRecords,
    ProduceRules,
    Record,
    TimestampType,
    build_batch,
    read_header,
    reference,
)

EXAMPLES = settings(max_examples=60)
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]

native: Any = None


@pytest.fixture(scope="module", autouse=True)
def implementation() -> None:
    global native
    native = implementation_named("native")


def same(name: str, *arguments: Any, **options: Any) -> object:
    """The answer of both kernels; a buffer that they change is handed to each afresh and compared too."""
    given_twice = [copy.deepcopy(arguments), arguments]
    answers = []
    for kernel, own in zip((native, reference), given_twice, strict=True):
        answers.append((outcome(partial(getattr(kernel, name), *own, **options)), plain(own)))
    assert answers[0] == answers[1]
    return answers[0][0]


def header_of(batch: bytes | bytearray) -> BatchHeader | None:
    try:
        return read_header(batch)
    except CorruptBatch:
        return None


# The broker's functions.


@given(batches(), produce_rules, st.sampled_from([T, NOW, 0, 2**63 - 1]))
@settings(max_examples=150)
def test_produced_batches_are_checked_alike(batch: bytearray, rules: ProduceRules, now_ms: int) -> None:
    same("check_produced", batch, rules, now_ms)


@given(st.lists(batches(), min_size=1, max_size=3), st.booleans(), st.integers(0, 30))
@EXAMPLES
def test_stretches_of_log_are_scanned_alike(found: list[bytearray], check_crc: bool, cut: int) -> None:
    stretch = b"".join(found)
    same("scan", stretch[: len(stretch) - cut], check_crc=check_crc)


@given(batches(), st.integers(0, 80), st.integers(0, 200))
@EXAMPLES
def test_checksums_are_alike(batch: bytearray, position: int, size: int) -> None:
    same("batch_crc", batch, position, size)
    same("crc_ok", batch, position, size)
    same("crc_ok", batch, 0, len(batch))


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1), st.integers(0, 9))
@EXAMPLES
def test_stamps_are_alike(base_offset: int, leader_epoch: int, position: int) -> None:
    same("stamp", bytearray(captured("java_none")), position, base_offset, leader_epoch)


@given(batches(), st.sampled_from([-1, 0, T, T + 4, 2**63 - 1]), st.integers(0, 3))
@EXAMPLES
def test_times_are_found_alike(batch: bytearray, target_ms: int, start_offset: int) -> None:
    same("find_time", b"before" + batch, 6, target_ms, start_offset)
    if header := header_of(batch):
        same("find_time", batch, 0, target_ms, start_offset, header)


@given(batches())
@EXAMPLES
def test_control_records_are_read_alike(batch: bytearray) -> None:
    same("read_control", batch)
    same("read_end_txn_marker", b"before" + batch, 6)


@given(
    st.sampled_from(ControlType),
    *(st.integers(-(2**bits), 2**bits - 1) for bits in (31, 63, 15, 31)),
    st.sampled_from([-1, 0, T, 2**63 - 1]),
)
@EXAMPLES
def test_markers_are_built_alike(
    kind: ControlType, epoch: int, producer_id: int, producer_epoch: int, leader_epoch: int, timestamp: int
) -> None:
    given = {"timestamp": timestamp, "producer_id": producer_id, "producer_epoch": producer_epoch}
    same("build_end_txn_marker", kind, epoch, leader_epoch=leader_epoch, base_offset=3, **given)


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\0\0\x02", b"\0\x01\0\x01", b"\0\0\0\x63", b"\xff\xff\0\0", None])
@pytest.mark.parametrize("value", [b"", b"\0\0\0\0\0\x07", b"\0\x01\0\0\0\x07and more", b"\xff\xff\0\0\0\0", None])
def test_odd_control_records_are_read_alike(key: bytes | None, value: bytes | None) -> None:
    batch = build_batch([Record(0, T, key, value)], control=True)
    same("read_control", batch)
    same("read_end_txn_marker", batch)


@given(
    st.lists(batches(), min_size=1, max_size=3),
    st.integers(1, 12),
    st.integers(-1, 40),
    st.fixed_dictionaries({name: st.booleans() for name in ("discard", "retain_empty", "marks_empty_txn")}),
    st.sampled_from([T, NOW, NOW + 10]),
)
@settings(max_examples=80)
def test_compaction_is_alike(
    found: list[bytearray], slots: int, from_offset: int, options: dict[str, bool], now_ms: int
) -> None:
    """Maps that small fill up in the middle of a batch."""
    maps = [kernel.OffsetMap(24 * slots, 1.0) for kernel in (native, reference)]
    kernels = list(zip((native, reference), maps, strict=True))
    for batch in found:
        if (header := header_of(batch)) is None:
            continue
        taken = [outcome(partial(k.put_keys, m, batch, header, 0, from_offset)) for k, m in kernels]
        assert taken[0] == taken[1]
        states = [(len(m), m.full, m.latest_offset, m.slots, m.keys_max) for m in maps]
        assert states[0] == states[1]
    for batch in found:
        if (header := header_of(batch)) is None:
            continue
        asked = {"now_ms": now_ms, "delete_retention_ms": 10, **options}
        left = [outcome(partial(k.filter_batch, batch, 0, header, keep=m, **asked)) for k, m in kernels]
        assert left[0] == left[1]


@given(st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 2**63 - 1)), max_size=60), st.integers(1, 40))
@EXAMPLES
def test_offset_maps_are_alike(entries: list[tuple[bytes, int]], slots: int) -> None:
    maps = [kernel.OffsetMap(24 * slots, 1.0) for kernel in (native, reference)]
    for key, offset in entries:
        assert maps[0].put(key, offset) == maps[1].put(key, offset)
    for key, _ in entries:
        assert maps[0].get(key) == maps[1].get(key)
    assert (len(maps[0]), maps[0].latest_offset) == (len(maps[1]), maps[1].latest_offset)


def test_many_refusals_are_named_alike() -> None:
    """A thousand records are named, and no more; a missing key outweighs a timestamp."""
    records = [Record(i, 2**50 if i % 3 else T, b"k" if i % 2 else None, b"v") for i in range(3000)]
    for count in (1, 2, 5, 1200, 3000):
        batch = bytearray(build_batch(records[:count]))
        answer = same("check_produced", batch, ProduceRules(compacted=True), T)
        assert isinstance(answer, tuple)
        assert answer[0] is InvalidRecords


# Compression.


@given(st.sampled_from(COMPRESSED), st.binary(max_size=400), st.integers(1, 400), st.sampled_from([None, 1, 5, 9]))
@EXAMPLES
def test_each_reads_what_the_other_compressed(codec: Codec, data: bytes, times: int, level: int | None) -> None:
    data *= times
    assert native.decompress(codec, reference.compress(codec, data, level)) == data
    assert reference.decompress(codec, native.compress(codec, data, level)) == data


@given(st.sampled_from(COMPRESSED), st.data())
@settings(max_examples=100)
def test_damaged_streams_are_read_alike(codec: Codec, data: st.DataObject) -> None:
    stream = bytearray(reference.compress(codec, b"abcdefghij" * 50 + bytes(range(256))))
    for at in data.draw(st.lists(st.integers(0, len(stream) - 1), max_size=3)):
        stream[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([0, 0, 0, 1, 2, 7, 40]))
    stream = stream[: len(stream) - cut] + data.draw(st.sampled_from([b"", b"", b"\0", b"junk", bytes(stream)]))
    same("decompress", codec, bytes(stream))


@given(st.sampled_from(COMPRESSED), st.binary(max_size=40))
@EXAMPLES
def test_garbage_is_read_alike(codec: Codec, garbage: bytes) -> None:
    same("decompress", codec, garbage)


BOMBS_IN_LITTLE_MEMORY = """

from ottla.kernel import Codec, CorruptBatch, compress, decompress
MIB = 1024 * 1024
streams = [(codec, compress(codec, bytes(96 * MIB))) for codec in Codec if codec is not Codec.NONE]
with open("/proc/self/clear_refs", "w") as peak:
    peak.write("5")  # The peak starts from here.
def line(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith(name))
before = line("VmRSS")
for codec, stream in streams:
    for limit in (4 * MIB, 64 * MIB):
        try:
            decompress(codec, stream, limit=limit, ratio=10**9)
        except CorruptBatch:
            continue
        raise SystemExit(f"{codec.name} is not stopped at {limit}")
print(line("VmHWM") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="this system has no /proc, where peak memory is read")
def test_bombs_stay_in_their_limits_of_memory() -> None:
    """At most 64 MiB of output, and as much again while the output grows."""
    run = subprocess.run([sys.executable, "-c", BOMBS_IN_LITTLE_MEMORY], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr or run.stdout
    assert int(run.stdout) < 140


def test_buffers_that_cannot_be_written_are_refused() -> None:
    """The batch must get the broker's time, and there is nowhere to put it."""
    with pytest.raises(TypeError, match="read-only"):
        native.check_produced(captured("java_none"), ProduceRules(timestamp_type=TimestampType.LOG_APPEND_TIME), T)
    with pytest.raises(TypeError, match="contiguous"):
        native.scan(memoryview(b"abcdef")[::2])
    with pytest.raises(ValueError, match="do not fit"):
        native.stamp(bytearray(10), 0, 1, 1)


def test_a_panic_is_an_error_like_others() -> None:
    """It must not end the node. Where a caller allows any size, a frame may claim more than memory has addresses."""
    no_checksum_of_8_bytes_size = b"\x28\xb5\x2f\xfd\xe0"
    empty_last_block = b"\x01\0\0"
    frame = no_checksum_of_8_bytes_size + (2**63).to_bytes(8, "little") + empty_last_block
    with pytest.raises(CorruptBatch, match="a defect of its own: capacity overflow"):
        native.decompress(Codec.ZSTD, frame, limit=2**64 - 1, ratio=2**63)
    assert native.decompress(Codec.ZSTD, native.compress(Codec.ZSTD, b"and it goes on")) == b"and it goes on"
