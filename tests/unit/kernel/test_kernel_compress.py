"""Compression: round trips, the framings other clients write, and what stops a bomb."""

import tracemalloc
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_samples import captured

from ottla import kernel
from ottla.kernel import HEADER_SIZE, Codec, CorruptBatch

MIB = 1024 * 1024
COMPRESSED = [codec for codec in Codec if codec]
TEXT = b"".join(b"line %d, " % (n % 97) for n in range(20_000))  # several blocks of snappy and of lz4


@given(st.sampled_from(Codec), st.binary(max_size=300), st.integers(1, 300))
@settings(max_examples=100)
def test_round_trip(codec: Codec, data: bytes, times: int) -> None:
    assert kernel.decompress(codec, memoryview(kernel.compress(codec, memoryview(data * times)))) == data * times


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (Codec.GZIP, [-1, 1, 9]),
        (Codec.LZ4, [1, 2, 3, 8, 9, 10, 12, 17]),
        (Codec.ZSTD, [-131072, -1, 1, 3, 19, 22]),
        (Codec.SNAPPY, [None]),
        (Codec.NONE, [None]),
    ],
)
def test_every_level_kafka_has_is_taken(codec: Codec, levels: list[int | None]) -> None:
    for level in levels:
        assert kernel.decompress(codec, kernel.compress(codec, TEXT, level)) == TEXT


def test_levels_have_an_effect() -> None:
    assert len(kernel.compress(Codec.GZIP, TEXT, 9)) < len(kernel.compress(Codec.GZIP, TEXT, 1))
    assert len(kernel.compress(Codec.ZSTD, TEXT, 19)) < len(kernel.compress(Codec.ZSTD, TEXT, -100))
    assert len(kernel.compress(Codec.LZ4, TEXT, 12)) < len(kernel.compress(Codec.LZ4, TEXT, 9))


def test_lz4_level_9_is_the_fast_compressor() -> None:
    """Kafka's default of compression.lz4.level means "not the high compressor", though 8 and 10 do."""
    assert kernel.compress(Codec.LZ4, TEXT, 9) == kernel.compress(Codec.LZ4, TEXT)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_streams_of_other_clients_are_read(codec: Codec) -> None:
    plain = captured("java_none")[HEADER_SIZE:]
    for client in ("java", "librdkafka"):
        assert kernel.decompress(codec, captured(f"{client}_{codec.name.lower()}")[HEADER_SIZE:]) == plain


def test_snappy_is_written_in_javas_framing() -> None:
    stream = kernel.compress(Codec.SNAPPY, TEXT)
    assert stream[:16] == bytes.fromhex("82534e41505059000000000100000001")
    size = int.from_bytes(stream[16:20], "big")
    assert cramjam.snappy.decompress_raw_len(stream[20 : 20 + size]) == 32 * 1024
    assert captured("java_snappy_blocks")[HEADER_SIZE:][:16] == stream[:16]


def test_snappy_of_librdkafka_has_no_framing() -> None:
    stream = captured("librdkafka_snappy")[HEADER_SIZE:]
    assert stream[:8] != b"\x82SNAPPY\0"
    assert kernel.decompress(Codec.SNAPPY, cramjam.snappy.compress_raw(TEXT)) == TEXT


def test_framed_snappy_streams_may_be_joined() -> None:
    """Java's reader accepts a second header between blocks."""
    assert kernel.decompress(Codec.SNAPPY, kernel.compress(Codec.SNAPPY, b"ab") * 2) == b"abab"


def test_lz4_frame_is_what_java_reads() -> None:
    """Java's reader knows independent blocks only; its writer sets exactly these flags."""
    frame = kernel.compress(Codec.LZ4, TEXT)
    java = captured("java_lz4")[HEADER_SIZE:]
    assert frame[:7] == java[:7] == bytes.fromhex("04224d18604082")


def test_lz4_blocks_that_depend_on_each_other_are_refused() -> None:
    """The library reads them, Java's consumers do not: one such batch would stop them all."""
    with pytest.raises(CorruptBatch, match="depend on each other"):
        kernel.decompress(Codec.LZ4, lz4.frame.compress(TEXT, block_linked=True))


@pytest.mark.parametrize("options", [{"content_checksum": True}, {"block_checksum": True}, {"store_size": True}])
def test_lz4_frames_with_options_are_read(options: dict[str, bool]) -> None:
    assert kernel.decompress(Codec.LZ4, lz4.frame.compress(TEXT, block_linked=False, **options)) == TEXT


def test_gzip_may_have_several_members() -> None:
    assert (
        kernel.decompress(Codec.GZIP, kernel.compress(Codec.GZIP, b"ab") + kernel.compress(Codec.GZIP, b"cd"))
        == b"abcd"
    )


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("data", [b"x", TEXT[:5000], TEXT], ids=len)
def test_stream_cut_off_anywhere_is_corrupt(codec: Codec, data: bytes) -> None:
    stream = kernel.compress(codec, data)
    # A framed snappy stream is a list of blocks: between two of them nothing shows that there were more.
    whole = {16, 20 + int.from_bytes(stream[16:20], "big")} if codec is Codec.SNAPPY else set()
    for cut in {0, 1, 4, 5, 7, 15, 17, 19, len(stream) // 2, len(stream) - 5, len(stream) - 1} - whole:
        if 0 <= cut < len(stream):
            with pytest.raises(CorruptBatch):
                kernel.decompress(codec, stream[:cut])


@pytest.mark.parametrize("codec", COMPRESSED)
def test_bytes_after_the_stream_are_corrupt(codec: Codec) -> None:
    with pytest.raises(CorruptBatch):
        kernel.decompress(codec, kernel.compress(codec, b"data") + b"junk")


@pytest.mark.parametrize("data", [b"", b"data"])
def test_bytes_after_a_zstd_frame_without_a_size_are_corrupt(data: bytes) -> None:
    """Java's producers write such frames: they do not know the size when they begin."""
    assert kernel.decompress(Codec.ZSTD, zstd_without_size(data)) == data
    with pytest.raises(CorruptBatch, match="4 bytes follow"):
        kernel.decompress(Codec.ZSTD, zstd_without_size(data) + b"junk")


def zstd_without_size(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=False).compress(data)


BOMBS = {
    "gzip": (Codec.GZIP, lambda size: kernel.compress(Codec.GZIP, bytes(size))),
    "gzip members": (Codec.GZIP, lambda size: kernel.compress(Codec.GZIP, bytes(MIB)) * (size // MIB)),
    "snappy": (Codec.SNAPPY, lambda size: bytes(cramjam.snappy.compress_raw(bytes(size)))),
    "snappy framed": (Codec.SNAPPY, lambda size: kernel.compress(Codec.SNAPPY, bytes(size))),
    "snappy that lies": (Codec.SNAPPY, lambda _: b"\xff\xff\xff\xff\x0f" + b"\0a"),
    "lz4": (Codec.LZ4, lambda size: kernel.compress(Codec.LZ4, bytes(size))),
    "zstd": (Codec.ZSTD, lambda size: kernel.compress(Codec.ZSTD, bytes(size))),
    "zstd without a size": (Codec.ZSTD, lambda size: zstd_without_size(bytes(size))),
}


@pytest.mark.parametrize(("codec", "bomb"), BOMBS.values(), ids=BOMBS)
def test_bomb_is_stopped_at_the_limit(codec: Codec, bomb: object) -> None:
    """Forty mebibytes out of a few kilobytes must not become forty mebibytes of memory first."""
    assert callable(bomb)
    stream = bomb(40 * MIB)
    limit = 2 * MIB
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch, match=r"bytes allowed|bytes of output allowed"):
            kernel.decompress(codec, stream, limit=limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * limit


@pytest.mark.parametrize("pack", [zstd_without_size, lambda data: kernel.compress(Codec.ZSTD, data)])
def test_ratio_counts_past_what_producers_pack_into_a_batch(pack: Callable[[bytes], bytes]) -> None:
    """Thirty megabytes of one letter are a dull batch of Java's producer, not an attack; forty are."""
    assert len(kernel.decompress(Codec.ZSTD, pack(bytes(30 * MIB)))) == 30 * MIB
    dull = pack(bytes(40 * MIB))
    assert len(dull) * 1000 < 40 * MIB
    with pytest.raises(CorruptBatch, match="unpack to more than"):
        kernel.decompress(Codec.ZSTD, dull)
    assert len(kernel.decompress(Codec.ZSTD, dull, ratio=100_000)) == 40 * MIB


def test_limit_is_exact() -> None:
    for codec in COMPRESSED:
        stream = kernel.compress(codec, bytes(1000))
        assert kernel.decompress(codec, stream, limit=1000) == bytes(1000)
        with pytest.raises(CorruptBatch):
            kernel.decompress(codec, stream, limit=999)


def data_or_typed_error(codec: Codec, stream: bytes | bytearray) -> bool:
    """False for a refusal that does not say which codec failed; any other exception passes through."""
    try:
        kernel.decompress(codec, stream)
    except CorruptBatch as corrupt:
        return codec.name.lower() in corrupt.text
    return True


@given(st.sampled_from(COMPRESSED), st.data())
@settings(max_examples=150)
def test_damaged_streams_give_data_or_a_typed_error(codec: Codec, data: st.DataObject) -> None:
    stream = bytearray(kernel.compress(codec, TEXT[:2000]))
    for position in data.draw(st.lists(st.integers(0, len(stream) - 1), min_size=1, max_size=4)):
        stream[position] = data.draw(st.integers(0, 255))
    assert data_or_typed_error(codec, stream)


@given(st.sampled_from(COMPRESSED), st.binary(max_size=60))
@settings(max_examples=100)
def test_garbage_gives_data_or_a_typed_error(codec: Codec, garbage: bytes) -> None:
    assert data_or_typed_error(codec, garbage)


def test_gzip_checksum_is_compared() -> None:
    stream = bytearray(kernel.compress(Codec.GZIP, b"data"))
    stream[-8:-4] = (zlib.crc32(b"date")).to_bytes(4, "little")
    with pytest.raises(CorruptBatch):
        kernel.decompress(Codec.GZIP, stream)
