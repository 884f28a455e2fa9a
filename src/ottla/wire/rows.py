"""Arrays of structures that are read column by column, and arrays that keep their encoded bytes.

Rule 1: elements whose strings are all empty or all null, and that have no tagged fields, take the same number of bytes
        each, so that one call reads a field of all of them. An array with any other element is read one by one.
Rule 2: a field declared as a `Sequence` is read this way: its elements are read-only.
Rule 3: the number of cached layouts is bounded: a long array is read in slices.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple, TypeVar, overload

from ottla.wire.shapes import Structure

T = TypeVar("T")

_ROWS_MIN: Final = 8  # Shorter arrays are read faster one by one.
_SLICE_ROWS: Final = 256
_LAYOUTS_KEPT: Final = 64


class Packed(Sequence[T]):
    """An immutable array that keeps its encoded bytes for every place where it occurs."""

    __slots__ = ("packed",)

    def __init__(self) -> None:
        self.packed: dict[str, bytes] = {}
        """The encoded elements, by message, version and field."""


class Shared(Packed[T]):
    """The same elements in many places of a response: encoded once, and in memory once."""

    __slots__ = ("_elements",)

    def __init__(self, elements: Sequence[T]) -> None:
        super().__init__()
        self._elements = elements

    def __len__(self) -> int:
        return len(self._elements)

    def __iter__(self) -> Iterator[T]:
        return iter(self._elements)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...

    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self._elements[index]

    def __eq__(self, other: object) -> bool:
        return list(self) == (list(other) if isinstance(other, Shared) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


class ColumnarArray(Packed[T]):
    """The elements of an array kept as columns; element objects are created at the first access."""

    __slots__ = ("_cls", "_columns", "_count", "_made")

    def __init__(self, cls: type[T], count: int, columns: Mapping[str, Sequence[Any]]) -> None:
        super().__init__()
        self._cls = cls
        self._count = count
        self._columns = columns
        self._made: list[T] | None = None

    def column(self, name: str) -> Sequence[Any]:
        """A field of every element."""
        return self._columns[name]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return iter(self._elements())

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> T | list[T]:
        return self._elements()[index]

    def __eq__(self, other: object) -> bool:
        return self._elements() == (other._elements() if isinstance(other, ColumnarArray) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._elements())

    def _elements(self) -> list[T]:
        if self._made is None:
            names = tuple(self._columns)
            self._made = [self._element(names, values) for values in zip(*self._columns.values(), strict=True)]
        return self._made

    def _element(self, names: tuple[str, ...], values: tuple[Any, ...]) -> T:
        element = object.__new__(self._cls)
        for name, value in zip(names, values, strict=True):
            setattr(element, name, value)
        return element


def column(rows: Sequence[Any], name: str) -> Sequence[Any]:
    """A field of every element of any array."""
    return rows.column(name) if isinstance(rows, ColumnarArray) else [getattr(one, name) for one in rows]


class _Number(NamedTuple):
    name: str
    code: str
    at: int


class _Marker(NamedTuple):
    """A byte, or two equal ones, that must be the same in all elements: a string's length, or zero tagged fields."""

    name: str | None
    at: int
    width: int
    meanings: dict[int, str | None]


_COMPACT_STRING: Final = (1, {0: None, 1: ""})
_PLAIN_STRING: Final = (2, {0xFF: None, 0: ""})
_NO_TAGS: Final[dict[int, str | None]] = {0: None}

_Columns = Callable[[bytes, int], tuple[Any, ...]]
"""Reads one field of `count` elements from a position on."""


class RowReader:
    """Reads an array of one structure in one version."""

    def __init__(self, structure: Structure, version: int, *, flexible: bool) -> None:
        self._cls = structure.cls
        self._absent = {f.name: f.default() for f in structure.fields if not f.in_version(version)}
        self._numbers: list[_Number] = []
        self._markers: list[_Marker] = []
        self._size = 0
        self._layouts: dict[int, list[_Columns]] = {}
        for f in structure.fields:
            if f.name in self._absent:
                continue
            assert f.primitive is not None
            if f.primitive.code:
                self._numbers.append(_Number(f.name, f.primitive.code, self._size))
                self._size += f.primitive.size
            else:
                width, known = _COMPACT_STRING if flexible and f.options.compact else _PLAIN_STRING
                is_nullable = f.nullable_in(version)
                self._mark(f.name, width, {byte: text for byte, text in known.items() if text == "" or is_nullable})
        if flexible:
            self._mark(None, 1, _NO_TAGS)

    def _mark(self, name: str | None, width: int, meanings: dict[int, str | None]) -> None:
        self._markers.append(_Marker(name, self._size, width, meanings))
        self._size += width

    @staticmethod
    def can_read(structure: Structure) -> bool:
        """Whether its elements can all have the same size."""
        return all(
            f.tag is None
            and not f.array
            and f.primitive is not None
            and (f.primitive.code or f.primitive.name == "string")
            for f in structure.fields
        )

    def __call__(self, buffer: memoryview, position: int, count: int) -> "ColumnarArray[Any] | None":
        """Read `count` elements, for whose smallest size there are enough bytes; None if they must be read one by
        one."""
        if count < _ROWS_MIN:
            return None
        size = self._size
        data = buffer[position : position + count * size].tobytes()
        found: dict[str, Sequence[Any]] = {}
        for name, at, width, meanings in self._markers:
            first = data[at]
            same = bytes((first,)) * count
            if first not in meanings or data[at::size] != same or (width == 2 and data[at + 1 :: size] != same):
                return None
            if name is not None:
                found[name] = (meanings[first],) * count
        if count <= _SLICE_ROWS:
            for number, read in zip(self._numbers, self._columns(count), strict=True):
                found[number.name] = read(data, 0)
        else:
            self._read_slices(data, count, found)
        for name, value in self._absent.items():
            found[name] = (value,) * count
        return ColumnarArray(self._cls, count, found)

    def _read_slices(self, data: bytes, count: int, found: dict[str, Sequence[Any]]) -> None:
        columns: list[list[Any]] = [[] for _ in self._numbers]
        for start in range(0, count, _SLICE_ROWS):
            readers = self._columns(min(count - start, _SLICE_ROWS))
            for values, read in zip(columns, readers, strict=True):
                values += read(data, start * self._size)
        found.update(zip((number.name for number in self._numbers), columns, strict=True))

    def _columns(self, count: int) -> list[_Columns]:
        readers = self._layouts.get(count)
        if readers is None:
            if len(self._layouts) >= _LAYOUTS_KEPT:
                self._layouts.clear()
            readers = self._layouts[count] = [
                Struct(">" + f"{at}x{code}{self._size - at - Struct('>' + code).size}x" * count).unpack_from
                for _, code, at in self._numbers
            ]
        return readers
