"""The two kernels, and their answers as values that can be compared."""

import importlib
import re
import shutil
from collections.abc import Callable
from types import ModuleType

import pytest

from ottla.kernel import HEADER_SIZE, Checked, CorruptBatch, Filtered, InvalidRecords, TakesLong, read_header, reference
from ottla.wire.errors import Refused


def implementation_named(name: str) -> ModuleType:
    """The kernel `name`. A native one that was not built is no fault where nothing could build it."""
    if name == "reference":
        return reference
    try:
        return importlib.import_module("ottla.kernel._native")
    except ImportError:
        if shutil.which("cargo") is None:
            pytest.skip("the native kernel is not built: there is no Rust toolchain (cargo)")
        raise


def outcome(work: Callable[[], object]) -> object:
    """What `work` gives or refuses, in values that can be compared."""
    try:
        return plain(work())
    except InvalidRecords as invalid:
        return type(invalid), invalid.error, common(invalid.text), invalid.record_errors
    except CorruptBatch as corrupt:
        return CorruptBatch, common(corrupt.text)
    except Refused as refused:
        return type(refused), refused.error, common(refused.text)
    except TakesLong as long:
        return type(long)
    except ValueError as mistake:
        return type(mistake), str(mistake)


def common(text: str) -> str:
    """The part of a refusal that is the kernel's: what a codec's library says of a damaged stream is its own."""
    text = re.sub(r"(stream is damaged: ).*", r"\1", text)
    return re.sub(r"(\d+ bytes of zstd) unpack to more than.*", r"the zstd stream is damaged: ", text)


def plain(value: object) -> object:
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    if isinstance(value, Checked) and value.recompressed:
        return packed(value.batch), value.header._replace(length=0, crc=0), value[2:]
    if isinstance(value, Filtered) and isinstance(value.batch, bytes):
        return packed(value.batch), value[1:]
    if isinstance(value, tuple):
        return type(value), [plain(member) for member in value]
    return value


def packed(batch: bytes | memoryview) -> object:
    """What a batch holds: two libraries compress the same records to different bytes."""
    header = read_header(batch)
    assert reference.crc_ok(batch, 0, header.size)
    return header._replace(length=0, crc=0), reference.decompress(header.codec, batch[HEADER_SIZE:])
