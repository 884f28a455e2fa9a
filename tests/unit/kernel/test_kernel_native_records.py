"""The native kernel's encoding and decoding against the reference's: same records or bytes in, same answer out."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_comparison import common, implementation_named, outcome, packed
from kernel_samples import CAPTURED, T, batches, payload, record_lists

from ottla.kernel import Aborted, Codec, Damage, FetchedPart, PartEnd, Record, TimestampType, reference

EXAMPLES = settings(max_examples=50)
KEPT = CAPTURED.with_name("kept")

native: Any = None


@pytest.fixture(scope="module", autouse=True)
def implementation() -> None:
    global native
    native = implementation_named("native")


# Encoding.


@given(record_lists(gaps=True), st.sampled_from(Codec), st.booleans(), st.booleans(), st.sampled_from([None, T, 0]))
@EXAMPLES
def test_batches_are_built_alike(
    records: list[Record], codec: Codec, transactional: bool, append_time: bool, horizon: int | None
) -> None:
    built = [
        kernel.build_batch(
            iter(records),
            codec=codec,
            leader_epoch=3,
            producer_id=2**40,
            producer_epoch=4,
            base_sequence=5,
            transactional=transactional,
            timestamp_type=TimestampType(append_time),
            append_time_ms=T,
            delete_horizon_ms=horizon,
            last_offset=records[-1].offset + 7,
        )
        for kernel in (native, reference)
    ]
    if codec is Codec.NONE:
        assert built[0] == built[1]
    else:
        assert packed(built[0]) == packed(built[1])


@given(record_lists(), st.booleans())
@EXAMPLES
def test_builders_grow_alike(records: list[Record], at_once: bool) -> None:
    builders = [kernel.BatchBuilder(7) for kernel in (native, reference)]
    for builder in builders:
        if at_once:
            builder.extend((*record[1:], object()) for record in records)
    for record in [] if at_once else records:
        assert len({builder.append(*record[1:]) for builder in builders}) == 1
    names = ("base_offset", "count", "records_size", "size", "last_offset_delta", "max_timestamp")
    ours, theirs = ([getattr(builder, name) for name in names] for builder in builders)
    assert ours == theirs
    assert builders[0].build(base_sequence=1) == builders[1].build(base_sequence=1)


def mistakes() -> dict[str, Any]:
    return {
        "no record": lambda kernel: kernel.build_batch([]),
        "same offset": lambda kernel: kernel.build_batch([Record(1, T, None, None)] * 2),
        "offset too far": lambda kernel: kernel.BatchBuilder().append_at(2**31, T, None, None),
        "negative timestamp": lambda kernel: kernel.BatchBuilder().append(-2, None, b""),
    }


@pytest.mark.parametrize("work", mistakes().values(), ids=mistakes())
def test_mistakes_are_told_in_the_same_words(work: Any) -> None:
    texts = []
    for kernel in (native, reference):
        with pytest.raises(ValueError) as caught:
            work(kernel)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("key", ["text", 5, [b"x"]])
def test_what_is_not_bytes_is_no_key(key: Any) -> None:
    """And nothing of the record is added."""
    builder = native.BatchBuilder()
    with pytest.raises(TypeError):
        builder.append(T, key, b"value")
    assert (builder.count, builder.records_size) == (0, 0)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_keys_and_values_may_be_any_bytes(kind: Any) -> None:
    builders = [kernel.BatchBuilder() for kernel in (native, reference)]
    for builder in builders:
        builder.append(T, kind(b"key"), kind(b"value"), [("name", kind(b"header"))])
    assert builders[0].build() == builders[1].build()


@given(st.binary(max_size=70))
@EXAMPLES
def test_keys_hash_alike(key: bytes) -> None:
    assert native.murmur2(key) == reference.murmur2(key)


# Decoding.


@given(batches(), st.sampled_from([0, 1]))
@EXAMPLES
def test_records_are_read_alike(batch: bytearray, position: int) -> None:
    data = b"?" * position + batch
    ours, theirs = (outcome(partial(kernel.read_records, data, None, position)) for kernel in (native, reference))
    assert ours == theirs


@st.composite
def fetched(draw: st.DrawFn) -> tuple[bytes, int, list[Aborted]]:
    """Batches, sound or not, one after the other at rising offsets, and transactions that may be aborted."""
    data, base = bytearray(), 0
    for _ in range(draw(st.integers(0, 4))):
        at = len(data)
        data += draw(batches())
        if draw(st.booleans()) and len(data) - at > 61:
            reference.stamp(data, at, base, 0)
        base += draw(st.integers(1, 12))
    aborted = st.builds(Aborted, st.integers(0, 30), st.sampled_from([4, 7, -1]))
    cut = draw(st.sampled_from([0, 0, 1, 30]))
    return bytes(data[: len(data) - cut]), draw(st.integers(0, 20)), draw(st.lists(aborted, max_size=3))


def told(damage: Damage | None) -> object:
    return damage and damage._replace(reason=common(damage.reason))


@given(fetched(), st.lists(st.integers(0, 6), max_size=6))
@EXAMPLES
def test_fetched_bytes_are_read_alike(given_bytes: tuple[bytes, int, list[Aborted]], pieces: list[int]) -> None:
    readers = [kernel.RecordReader(*given_bytes) for kernel in (native, reference)]
    for piece in [*pieces, 2**40]:
        ours, theirs = (
            (reader.take(piece), reader.next_offset, told(reader.damage), reader.needed) for reader in readers
        )
        assert ours == theirs


@pytest.mark.parametrize(
    "path", [*sorted(CAPTURED.glob("*.hex")), *sorted(KEPT.glob("*.hex"))], ids=lambda path: path.stem
)
@pytest.mark.parametrize("position", [0, 1, 12])
def test_captured_and_kept_bytes_are_read_alike(path: Path, position: int) -> None:
    """Kept are those that once broke a promise of the native kernel: see `make fuzz`."""
    data = bytes.fromhex("".join(line for line in path.read_text().splitlines() if not line.startswith("#")))
    readers = [kernel.RecordReader(data, position, [Aborted(0, 77)]) for kernel in (native, reference)]
    ours, theirs = ((reader.take(), reader.next_offset, told(reader.damage), reader.needed) for reader in readers)
    assert ours == theirs


@given(st.lists(fetched(), max_size=3), st.integers(1, 2000))
@EXAMPLES
def test_columns_are_read_alike(parts: list[tuple[bytes, int, list[Aborted]]], bytes_max: int) -> None:
    made = [FetchedPart(number, *part) for number, part in enumerate(parts)]
    ours, theirs = (kernel.read_columns(iter(made), bytes_max=bytes_max) for kernel in (native, reference))
    assert ours.to_pydict() == theirs.to_pydict()
    assert len(ours) == len(theirs)

    def ends(found: list[PartEnd]) -> list[PartEnd]:
        return [end._replace(damage=told(end.damage)) for end in found]  # type: ignore[arg-type]

    assert ends(ours.ends) == ends(theirs.ends)


@given(st.binary(max_size=200), payload)
@EXAMPLES
def test_any_bytes_have_an_answer(data: bytes, other: bytes | None) -> None:
    readers = [kernel.RecordReader(data, 0) for kernel in (native, reference)]
    assert readers[0].take() == readers[1].take()
    assert told(readers[0].damage) == told(readers[1].damage)
    assert len(native.read_columns([FetchedPart(0, data, 0), FetchedPart(1, other or b"", 0)])) == 0
