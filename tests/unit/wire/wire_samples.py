"""Messages for tests, derived from their declarations."""

import pkgutil
from importlib import import_module
from typing import Any

from hypothesis import strategies as st

import ottla.wire
from ottla.wire.schema import message_of, structure_of
from ottla.wire.shapes import Field, Structure


def declared_messages() -> list[type[Any]]:
    """Every class declared with @message, by name."""
    found: dict[str, type[Any]] = {}
    for module_info in pkgutil.walk_packages(ottla.wire.__path__, "ottla.wire."):
        module = import_module(module_info.name)
        for cls in vars(module).values():
            if isinstance(cls, type) and "__message__" in vars(cls) and cls.__module__ == module.__name__:
                found[cls.__name__] = cls
    return [found[name] for name in sorted(found)]


MESSAGES = declared_messages()
MESSAGE_VERSIONS = [(cls, version) for cls in MESSAGES for version in message_of(cls).versions]

_TEXT = st.text(st.characters(codec="utf-8"), max_size=20) | st.just("x" * 200)
_BYTES = st.binary(max_size=20) | st.binary(min_size=200, max_size=200)
_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": _TEXT,
    "bytes": _BYTES,
    "records": _BYTES,
}


def instances(cls: type[Any]) -> st.SearchStrategy[Any]:
    """Values for every field, whatever the version: see `carried` for what is left of them in one."""
    return _structure(structure_of(cls))


def _structure(structure: Structure) -> st.SearchStrategy[Any]:
    return st.tuples(*map(_field, structure.fields)).map(
        lambda values: structure.cls(**dict(zip((f.name for f in structure.fields), values, strict=True)))
    )


def _field(f: Field) -> st.SearchStrategy[Any]:
    element = _structure(f.structure) if f.structure else _PRIMITIVES[f.primitive.name if f.primitive else ""]
    value = st.lists(element, max_size=3) if f.array else element
    return st.none() | value if f.optional else value


def carried(message: Any, version: int) -> Any:
    """What is left of a message after a journey in this version."""
    return _carried(structure_of(type(message)), message, version)


def _carried(structure: Structure, message: Any, version: int) -> Any:
    values = {}
    for f in structure.fields:
        value = getattr(message, f.name)
        if not f.in_version(version):
            value = f.default()
        elif value is None:
            value = None if f.nullable_in(version) or not f.options.nullable else _zero(f)
        elif f.structure and f.array:
            value = [_carried(f.structure, element, version) for element in value]
        elif f.structure:
            value = _carried(f.structure, value, version)
            if not f.options.nullable and value == f.structure.blank():
                value = None  # Not sent, because it says nothing.
        values[f.name] = value
    return structure.cls(**values)


def _zero(f: Field) -> Any:
    if f.array:
        return []
    return f.structure.blank() if f.structure else f.primitive.zero if f.primitive else None


def filled(cls: type[Any], version: int, seed: int = 1) -> Any:
    """A message in which every field of the version holds a value that is not its default. Numbers stay small."""
    return _Filler(version, seed).fill(structure_of(cls))


class _Filler:
    def __init__(self, version: int, seed: int) -> None:
        self._version, self._count = version, seed

    def fill(self, structure: Structure) -> Any:
        return structure.cls(**{f.name: self._value(f) for f in structure.fields})

    def _value(self, f: Field) -> Any:
        if not f.in_version(self._version):
            return f.default()
        return [self._element(f), self._element(f)] if f.array else self._element(f)

    def _element(self, f: Field) -> Any:
        if f.structure:
            return self.fill(f.structure)
        assert f.primitive
        self._count += 1
        number = 1 + self._count % 60
        match f.primitive.name:
            case "bool":
                return not f.default()
            case "float64":
                return number / 4
            case "uuid":
                return bytes([number]) * 16
            case "string":
                return f"text-{number}"
            case "bytes" | "records":
                return b"bytes-%d" % number
            case _:
                return number
