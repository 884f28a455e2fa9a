"""The four compressions of record batches, as Kafka's clients write and read them.

Rule 1: `decompress` holds at most `allowance(...)` bytes of output, whatever the input claims; larger output is refused
        as a bomb. A stream that is cut off, or followed by other bytes, is corrupt.
Rule 2: the output of `compress` is readable by every Kafka client: gzip without a name, snappy in the xerial framing
        with blocks of 32 KiB, lz4 frames of independent 64 KiB blocks without a content checksum, zstd frames. Java
        cannot read lz4 frames with linked blocks.
Rule 3: the output of any client is readable: snappy bare (librdkafka) or framed (Java), gzip in several members.
Rule 4: levels mean the same as Kafka's `compression.{gzip,lz4,zstd}.level`; None is Kafka's default. Level 9 of lz4,
        the default, is the fast compressor; 8 and 10 are the slow one.
"""

import zlib
from collections.abc import Callable
from typing import Final

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import zstandard

from ottla.kernel.batch import Buffer, Codec
from ottla.kernel.errors import CorruptBatch

LIMIT: Final = 64 * 1024 * 1024
RATIO: Final = 1000
# Up to this much output any ratio is allowed. A producer fills a batch by the compression ratio of earlier batches:
# Java's producer packs some 30 MB of highly compressible records into an ordinary batch of 16 KiB.
_ALWAYS_ALLOWED: Final = 32 * 1024 * 1024

_CHUNK: Final = 256 * 1024  # Output is requested in pieces, because the libraries allocate what is requested.

_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS  # zlib's flag for gzip's header and trailer.

_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1"  # version 1, readable by version 1
_XERIAL_BLOCK: Final = 32 * 1024

_LZ4_KAFKA_DEFAULT: Final = 9  # Kafka's number for the fast compressor; every other level is the high compressor's.
_LZ4_HIGH_MIN: Final = 3
_LZ4_HIGH_MAX: Final = 12
_LZ4_FLAGS_AT: Final = 4
_LZ4_INDEPENDENT_BLOCKS: Final = 0x20

_ZSTD_DEFAULT: Final = 3
_ZSTD_STEP_MIN: Final = 64
_ZSTD_GROWTH_MAX: Final = 32 * 1024  # A block of four bytes becomes 128 KiB at most.


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data` with `codec`; None is the default level of the codec."""
    match codec:
        case Codec.GZIP:
            return _gzip(data, level)
        case Codec.SNAPPY:
            return _snappy(data)
        case Codec.LZ4:
            return _lz4(data, level)
        case Codec.ZSTD:
            return zstandard.ZstdCompressor(level=_ZSTD_DEFAULT if level is None else level).compress(data)
        case _:
            return bytes(data)


def decompress(codec: Codec, data: Buffer, *, limit: int = LIMIT, ratio: int = RATIO) -> bytes:
    """Decompress `data`. Raises CorruptBatch if the stream is damaged, and Bomb if its output is too large."""
    if codec is Codec.NONE:
        return bytes(data)
    return _DECOMPRESS[codec](memoryview(data), allowance(len(data), limit, ratio))


def allowance(compressed: int, limit: int = LIMIT, ratio: int = RATIO) -> int:
    """The number of bytes that `compressed` bytes may unpack to."""
    return min(limit, max(_ALWAYS_ALLOWED, compressed * ratio))


class Bomb(CorruptBatch):
    """The compressed bytes unpack to more than is allowed."""


def _bomb(codec: Codec, compressed: int, allowed: int) -> Bomb:
    return Bomb(f"{compressed} bytes of {codec.name.lower()} unpack to more than the {allowed} bytes allowed")


def _damaged(codec: Codec, why: object) -> CorruptBatch:
    return CorruptBatch(f"the {codec.name.lower()} stream is damaged: {why}")


def _gzip(data: Buffer, level: int | None) -> bytes:
    stream = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
    return stream.compress(data) + stream.flush()


def _gunzip(data: memoryview, allowed: int) -> bytes:
    out = bytearray()
    rest: Buffer = data
    while True:
        stream = zlib.decompressobj(_GZIP_WINDOW)
        try:
            while not stream.eof:
                piece = stream.decompress(rest, _CHUNK)
                rest = stream.unconsumed_tail
                out += piece
                if len(out) > allowed:
                    raise _bomb(Codec.GZIP, len(data), allowed)
                if not piece and not rest and not stream.eof:
                    raise _damaged(Codec.GZIP, "it ends early")
        except zlib.error as error:
            raise _damaged(Codec.GZIP, error) from None
        rest = stream.unused_data
        if not rest:
            return bytes(out)


def _snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    out = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        out += (len(block).to_bytes(4, "big"), block)
    return b"".join(out)


def _unsnappy(data: memoryview, allowed: int) -> bytes:
    if not _is_framed(data, 0):
        return _unsnappy_block(data, len(data), allowed)
    out = bytearray()
    position = 0
    while position < len(data):
        if _is_framed(data, position):  # Framed streams may be concatenated.
            position += len(_XERIAL_HEADER)
            continue
        size = int.from_bytes(data[position : position + 4], "big")
        position += 4
        if not 0 < size <= len(data) - position:
            raise _damaged(Codec.SNAPPY, f"a block claims {size} bytes, {len(data) - position} are left")
        out += _unsnappy_block(data[position : position + size], len(data), allowed - len(out))
        position += size
    if position != len(data):
        raise _damaged(Codec.SNAPPY, "it ends inside a frame's header")
    return bytes(out)


def _is_framed(data: memoryview, position: int) -> bool:
    return bytes(data[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC


def _unsnappy_block(block: memoryview, compressed: int, allowed: int) -> bytes:
    try:
        # The library allocates what the block's first bytes claim, so check that first.
        if cramjam.snappy.decompress_raw_len(block) > allowed:
            raise _bomb(Codec.SNAPPY, compressed, allowed)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _damaged(Codec.SNAPPY, error) from None


def _lz4(data: Buffer, level: int | None) -> bytes:
    fast = level is None or level == _LZ4_KAFKA_DEFAULT
    frame: bytes = lz4.frame.compress(
        data,
        compression_level=0 if fast else min(max(level or 0, _LZ4_HIGH_MIN), _LZ4_HIGH_MAX),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return frame


def _unlz4(data: memoryview, allowed: int) -> bytes:
    if len(data) > _LZ4_FLAGS_AT and not data[_LZ4_FLAGS_AT] & _LZ4_INDEPENDENT_BLOCKS:
        # The library could read it, but Kafka's consumers cannot: such a batch must not get into the log.
        raise _damaged(Codec.LZ4, "its blocks depend on each other, which Kafka's clients cannot read")
    stream = lz4.frame.LZ4FrameDecompressor()
    out = bytearray()
    rest: Buffer = data
    try:
        while not stream.eof:
            piece = stream.decompress(rest, _CHUNK)
            rest = b""  # The stream keeps the unused bytes.
            out += piece
            if len(out) > allowed:
                raise _bomb(Codec.LZ4, len(data), allowed)
            if not piece and stream.needs_input and not stream.eof:
                raise _damaged(Codec.LZ4, "it ends early")
    except RuntimeError as error:
        raise _damaged(Codec.LZ4, error) from None
    if stream.unused_data:
        raise _damaged(Codec.LZ4, f"{len(stream.unused_data)} bytes follow its end")
    return bytes(out)


def _unzstd(data: memoryview, allowed: int) -> bytes:
    try:
        claimed = zstandard.frame_content_size(data)
        if claimed > allowed:
            raise _bomb(Codec.ZSTD, len(data), allowed)
        if claimed > 0:
            return zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
        return _unzstd_stream(data, allowed)
    except zstandard.ZstdError as error:
        raise _damaged(Codec.ZSTD, error) from None


def _unzstd_stream(data: memoryview, allowed: int) -> bytes:
    """Decompress a frame without a content size in small steps, so that a bomb is detected early."""
    stream = zstandard.ZstdDecompressor().decompressobj()
    out = bytearray()
    step = max(_ZSTD_STEP_MIN, allowed // _ZSTD_GROWTH_MAX)
    for start in range(0, len(data), step):
        piece = data[start : start + step]
        out += stream.decompress(piece)
        if len(out) > allowed:
            raise _bomb(Codec.ZSTD, len(data), allowed)
        if stream.eof:
            left = len(data) - start - len(piece) + len(stream.unused_data)
            if left:
                raise _damaged(Codec.ZSTD, f"{left} bytes follow its end")
            return bytes(out)
    raise _damaged(Codec.ZSTD, "it ends early")


_DECOMPRESS: Final[dict[Codec, Callable[[memoryview, int], bytes]]] = {
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
