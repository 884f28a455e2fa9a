"""The notation of messages: `@struct`, `@message`, `field`.

    @message(api_key=10, versions=(0, 6), flexible=3)
    class FindCoordinatorRequest:
        key: String = field(until=3, default="")
        key_type: Int8 = field(since=1, default=0, ignorable=True)

Rule 1: one class per message, for all versions. A field declares the versions that have it.
Rule 2: a field without `default` must be given when a message is built. A field that the decoded version does not have
        gets its default, or the zero of its type.
Rule 3: an inconsistent declaration raises `BadDeclaration` when its module is imported, never later.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, dataclass_transform

from ottla.wire.shapes import MISSING, BadDeclaration, Field, FieldOptions, Structure, read_fields

__all__ = ["BadDeclaration", "Message", "Struct", "field", "message", "message_of", "struct", "structure_of"]

T = TypeVar("T")


def field(
    *,
    since: int | None = None,
    until: int | None = None,
    tag: int | None = None,
    default: Any = MISSING,
    nullable: bool = True,
    nullable_since: int | None = None,
    ignorable: bool = False,
    compact: bool = True,
    secret: bool = False,
) -> Any:
    """Declare the properties of a field that its annotation does not express.

    since, until    first and last version that have the field
    tag             the field is sent as this tagged field, and only if it differs from its default
    default         its value if none is given
    nullable        False, for a tagged structure: `None` means that it is not sent, and it is never sent as null
    nullable_since  first version in which null is allowed
    ignorable       if the version does not have the field, encoding drops its value instead of failing
    compact         False: flexible versions keep the old layout of the field
    secret          never shown by `repr`
    """
    return FieldOptions(since, until, tag, default, nullable, nullable_since, ignorable, compact, secret)


class Struct:
    """The base of every declared class: equality, `repr` and an `__init__` that is compiled when first needed."""

    __slots__ = ()
    __structure__: ClassVar[Structure]

    def __init__(self, **values: object) -> None:
        cls = type(self)
        cls.__init__ = _compile_init(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in self.__structure__.fields)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = self.__structure__.fields
        shown = (f"{f.name}={'<secret>' if f.secret else repr(getattr(self, f.name))}" for f in fields)
        return f"{type(self).__name__}({', '.join(shown)})"


def _compile_init(cls: type[Struct]) -> Callable[..., None]:
    """Compile the `__init__` of a class. It takes keyword arguments only; a default list is new for each instance."""
    scope: dict[str, Any] = {}
    required, optional, body = [], [], []
    for name, f in ((f.name, f) for f in cls.__structure__.fields):
        value = name
        if f.required:
            required.append(name)
        else:
            scope[f"_{name}"] = default = f.default()
            optional.append(f"{name}=_{name}")
            if isinstance(default, list):
                value = f"[] if {name} is _{name} else {name}"
        body.append(f"    self.{name} = {value}")
    arguments = ", ".join(["self", *(["*"] if body else []), *required, *optional])
    source = "\n".join([f"def __init__({arguments}):", *(body or ["    pass"])])
    exec(source, scope)
    init: Callable[..., None] = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


@dataclass(frozen=True, slots=True)
class Message:
    """The properties of a message as a whole."""

    name: str
    versions: range
    flexible: int | None  # First version with compact lengths and tagged fields.
    api_key: int | None  # Only requests and responses have one.
    record_type: int | None  # Only records of internal topics have one.
    listeners: tuple[str, ...]  # The kinds of listeners that accept the request: "broker", "controller".
    unstable: bool  # The last version may still change, so it is not advertised.

    def is_flexible(self, version: int) -> bool:
        return self.flexible is not None and version >= self.flexible


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def struct(cls: type[T]) -> type[T]:
    """Declare a structure inside messages."""
    return _declare(cls, {})


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def message(
    *,
    versions: tuple[int, int],
    flexible: int | None = None,
    api_key: int | None = None,
    record_type: int | None = None,
    listeners: tuple[str, ...] = (),
    unstable: bool = False,
) -> Callable[[type[T]], type[T]]:
    """Declare a message. `versions` are its first and last version; `flexible` is the first flexible one, or None."""

    def declare(cls: type[T]) -> type[T]:
        name, (first, last) = cls.__name__, versions
        if not 0 <= first <= last:
            raise BadDeclaration(f"{name}: versions {first} to {last} are no range")
        if flexible is not None and not 0 <= flexible <= last:
            raise BadDeclaration(f"{name}: flexible={flexible} is past its last version {last}")
        if api_key is not None and not name.endswith(("Request", "Response")):
            raise BadDeclaration(f"{name}: a message with an api_key is named ...Request or ...Response")
        if not (cls.__doc__ or "").strip():
            raise BadDeclaration(f"{name}: a message needs a sentence that says what it is for")
        facts = Message(name, range(first, last + 1), flexible, api_key, record_type, listeners, unstable)
        codecs = ("__decoders__", "__encoders__", "__stepwise_decoders__", "__stepwise_encoders__")
        declared = _declare(cls, {"__message__": facts, **{kind: {} for kind in codecs}})
        _check_versions(facts, structure_of(declared), name)
        return declared

    return declare


def structure_of(cls: type) -> Structure:
    structure: Structure = cls.__structure__  # type: ignore[attr-defined]
    return structure


def message_of(cls: type) -> Message:
    """The properties of a message class. Raises TypeError if the class is not a message."""
    facts = cls.__dict__.get("__message__")
    if not isinstance(facts, Message):
        raise TypeError(f"{cls.__name__} is not declared with @message")
    return facts


def _declare(cls: type[T], extra: dict[str, object]) -> type[T]:
    """The same class, derived from `Struct` and with slots for its fields."""
    fields = read_fields(cls)
    replaced = {"__dict__", "__weakref__", *(f.name for f in fields)}
    own = {name: value for name, value in vars(cls).items() if name not in replaced}
    namespace = {**own, **extra, "__slots__": tuple(f.name for f in fields)}
    declared: Any = type(cls.__name__, (Struct,), namespace)
    declared.__structure__ = Structure(declared, fields)
    return declared  # type: ignore[no-any-return]


def _check_versions(facts: Message, structure: Structure, path: str) -> None:
    for f, where in _fields_below(structure, path):
        last = facts.versions[-1]
        if f.since > last:
            raise BadDeclaration(f"{where}: since={f.since} is past the message's last version {last}")
        if f.until is not None and f.until < facts.versions[0]:
            raise BadDeclaration(f"{where}: until={f.until} is before the message's first version {facts.versions[0]}")
        if f.tag is not None and (facts.flexible is None or max(f.since, facts.versions[0]) < facts.flexible):
            raise BadDeclaration(f"{where}: tagged fields exist in flexible versions only: since={facts.flexible}")


def _fields_below(structure: Structure, path: str) -> Iterator[tuple[Field, str]]:
    for f in structure.fields:
        yield f, f"{path}.{f.name}"
        if f.structure is not None:
            yield from _fields_below(f.structure, f"{path}.{f.name}")
