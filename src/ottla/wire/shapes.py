"""The checked contents of a declaration: the fields of a structure and their types."""

import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Union, get_args, get_origin

from ottla.wire.types import Primitive


class BadDeclaration(TypeError):
    """A declared class contradicts itself; the text names class and field."""


class _Missing:
    def __repr__(self) -> str:
        return "<no default>"


MISSING: Final = _Missing()


@dataclass(frozen=True, slots=True)
class FieldOptions:
    """The arguments of `schema.field`, which documents them."""

    since: int | None = None
    until: int | None = None
    tag: int | None = None
    default: Any = MISSING
    nullable: bool = True
    nullable_since: int | None = None
    ignorable: bool = False
    compact: bool = True
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a structure. Exactly one of `primitive` and `structure` is set; `array` makes it a list of them."""

    name: str
    primitive: Primitive | None
    structure: "Structure | None"
    array: bool
    optional: bool  # The annotation allows None.
    since: int
    until: int | None
    options: FieldOptions
    in_rows: bool = False
    """Whether the field is declared as a `Sequence` and read column by column (`rows`)."""

    @property
    def tag(self) -> int | None:
        return self.options.tag

    @property
    def ignorable(self) -> bool:
        return self.options.ignorable

    @property
    def secret(self) -> bool:
        return self.options.secret

    @property
    def required(self) -> bool:
        """Whether the field must be given when the structure is built."""
        return isinstance(self.options.default, _Missing)

    def in_version(self, version: int) -> bool:
        return version >= self.since and (self.until is None or version <= self.until)

    def nullable_in(self, version: int) -> bool:
        """Whether null may be sent. Narrower than `optional`: see `schema.field` on nullable and nullable_since."""
        return self.optional and self.options.nullable and version >= (self.options.nullable_since or 0)

    def default(self) -> object:
        """The declared default, else the zero of the type, as in Kafka. Lists and structures are fresh."""
        if not self.required:
            return list(self.options.default) if isinstance(self.options.default, list) else self.options.default
        if self.array:
            return []
        if self.structure is not None:
            return self.structure.blank()
        assert self.primitive is not None
        if self.primitive.name == "records" and self.optional:
            return None
        return self.primitive.zero


@dataclass(frozen=True, slots=True)
class Structure:
    """The fields of a declared class, in the order of their encoding."""

    cls: type
    fields: tuple[Field, ...]

    def blank(self) -> Any:
        """An instance whose fields all hold their defaults."""
        instance: Any = object.__new__(self.cls)
        for f in self.fields:
            setattr(instance, f.name, f.default())
        return instance


def read_fields(cls: type) -> tuple[Field, ...]:
    fields = tuple(_read_field(cls, name, annotation) for name, annotation in cls.__annotations__.items())
    tags = sorted(f.tag for f in fields if f.tag is not None)
    if tags != list(range(len(tags))):
        raise BadDeclaration(f"{cls.__name__}: tags must be 0, 1, 2... without gap or repetition, not {tags}")
    return fields


def _read_field(cls: type, name: str, annotation: Any) -> Field:
    where = f"{cls.__name__}.{name}"
    options = vars(cls).get(name, FieldOptions())
    if not isinstance(options, FieldOptions):
        raise BadDeclaration(f"{where}: write field(default={options!r}), not a bare value")
    inner, optional = _strip_none(annotation, where)
    in_rows = get_origin(inner) is Sequence
    array = in_rows or get_origin(inner) is list
    if array:
        (inner,) = get_args(inner)
    primitive, structure = _element(inner, where)
    f = Field(name, primitive, structure, array, optional, options.since or 0, options.until, options, in_rows)
    _check(f, where)
    return f


def _strip_none(annotation: Any, where: str) -> tuple[Any, bool]:
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, False
    inner = [a for a in get_args(annotation) if a is not types.NoneType]
    if len(inner) != 1:
        raise BadDeclaration(f"{where}: {annotation} has more than one type beside None")
    return inner[0], True


def _element(inner: Any, where: str) -> tuple[Primitive | None, Structure | None]:
    if get_origin(inner) is Annotated:
        primitive = inner.__metadata__[0]
        if isinstance(primitive, Primitive):
            return primitive, None
    structure = getattr(inner, "__structure__", None)
    if not isinstance(structure, Structure):
        raise BadDeclaration(
            f"{where}: {inner!r} is neither a type of ottla.wire.types nor a class made by @struct; "
            "elements of arrays cannot be nullable"
        )
    return None, structure


def _check(f: Field, where: str) -> None:
    options = f.options
    if f.until is not None and f.until < f.since:
        raise BadDeclaration(f"{where}: until={f.until} is before since={f.since}")
    if options.nullable_since is not None and not f.optional:
        raise BadDeclaration(f"{where}: nullable_since needs a type that ends in | None")
    if not options.nullable and not (f.optional and f.structure and f.tag is not None and not f.array):
        raise BadDeclaration(f"{where}: nullable=False is for tagged structures whose type ends in | None")
    if not f.required:
        _check_default(f, where)


def _check_default(f: Field, where: str) -> None:
    value = f.options.default
    if value is None:
        if not f.optional:
            raise BadDeclaration(f"{where}: default=None needs a type that ends in | None")
        return
    if f.structure is not None and not f.array:
        raise BadDeclaration(f"{where}: the default of a structure is None or left out")
    if f.array:
        if value != []:
            raise BadDeclaration(f"{where}: the default of an array is [] or None, not {value!r}")
        return
    assert f.primitive is not None
    if type(value) is not type(f.primitive.zero):
        raise BadDeclaration(f"{where}: default={value!r} is no {f.primitive.name}")
