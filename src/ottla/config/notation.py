"""How a setting is declared: once, with everything that parsing, checking, describing and documenting it needs.

    SEGMENT_BYTES = setting("log.segment.bytes", Bytes, default=1 * GiB, at_least=1 * MiB, topic="segment.bytes",
                            doc="Roll the active segment when the next batch would exceed this size.")

Rule 1: names, types, defaults and bounds are Kafka's; a test compares them with Kafka's jars. Ottla's own settings
        begin with `ottla.`.
Rule 2: a declaration is a constant. `config[SEGMENT_BYTES]` is typed by it, and values live in `Config` alone.
Rule 3: what a setting does not do yet is said in its declaration (`inert`), so the documentation cannot claim it.
Rule 4: a secret is a `Secret` from the moment it is parsed; nothing that shows values shows one.
"""

import re
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from enum import Enum, IntEnum
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB
SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308

HIDDEN: Final = "[hidden]"
_DURATION = r"P(?=.)(?:\d+D)?(?:T(?=.)(?:\d+H)?(?:\d+M)?(?:\d+(?:\.\d{1,9})?S)?)?"
_SHARE_START = re.compile(rf"latest|earliest|by_duration:{_DURATION}", re.IGNORECASE)
_TYPE_NUMBERS = {
    name: number
    for number, name in enumerate(
        ("BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD"), start=1
    )
}


class Scope(IntEnum):
    """What a setting belongs to, by the numbers that requests about settings send."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


class Update(Enum):
    """How a running cluster accepts a new value, in Kafka's terms."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Secret:
    """A password or key. It is never shown; only `reveal` returns it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


@dataclass(frozen=True, eq=False)
class ValueType(Generic[T]):
    """A type of values. `parse` takes trimmed text and raises `ValueError` with what it expected."""

    kafka: str
    parse: Callable[[str], T]
    show: Callable[[T], str]
    unit: str = ""

    @property
    def number(self) -> int:
        """The number of the type in DescribeConfigs."""
        return _TYPE_NUMBERS[self.kafka]


def _integer(bits: int) -> Callable[[str], int]:
    limit = 1 << (bits - 1)

    def parse(text: str) -> int:
        # int() alone would take "1_000" and digits of other scripts, which Kafka's brokers refuse.
        if not (text.isascii() and text.removeprefix("-").removeprefix("+").isdigit()):
            raise ValueError("a whole number")
        number = int(text)
        if not -limit <= number < limit:
            raise ValueError(f"a whole number of {bits} bits ({-limit} to {limit - 1})")
        return number

    return parse


def _double(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError("a number") from None
    if number != number:
        raise ValueError("a number")
    return number


def _bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _list(text: str) -> tuple[str, ...]:
    items = _items(text)
    if "" in items:
        raise ValueError("a list without empty items, separated by commas")
    return tuple(dict.fromkeys(items))  # Duplicates count once, as in Kafka.


def _items(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",")) if text else ()


def _share_start(text: str) -> str:
    if not _SHARE_START.fullmatch(text):
        raise ValueError("latest, earliest or by_duration: with a duration such as P2DT3H4M5S")
    return text


def _show_double(number: float) -> str:
    """As Java formats it, because clients compare the values in DescribeConfigs."""
    return repr(float(number)).upper().replace("E+", "E")


Short = ValueType("SHORT", _integer(16), str)
Int = ValueType("INT", _integer(32), str)
Long = ValueType("LONG", _integer(64), str)
Bytes = ValueType("INT", _integer(32), str, "bytes")
LongBytes = ValueType("LONG", _integer(64), str, "bytes")
Ms = ValueType("LONG", _integer(64), str, "ms")
IntMs = ValueType("INT", _integer(32), str, "ms")
ShortSeconds = ValueType("SHORT", _integer(16), str, "seconds")
Seconds = ValueType("INT", _integer(32), str, "seconds")
LongSeconds = ValueType("LONG", _integer(64), str, "seconds")
Minutes = ValueType("INT", _integer(32), str, "minutes")
Hours = ValueType("INT", _integer(32), str, "hours")
Double = ValueType("DOUBLE", _double, _show_double)
Bool = ValueType("BOOLEAN", _bool, lambda value: "true" if value else "false")
String = ValueType("STRING", str, str)
ShareStart = ValueType("STRING", _share_start, str)
ListOf = ValueType("LIST", _list, ",".join)
ReplicaList = ValueType("LIST", _items, ",".join)
"""The contents are checked when the setting is changed, so that a topic with other contents can be opened."""
ClassName = ValueType("CLASS", str, str)
Password = ValueType("PASSWORD", Secret, lambda _: HIDDEN)


def optional(type: ValueType[T]) -> ValueType[T | None]:  # noqa: A002 - the notation reads better with the plain word
    """The same type for a setting that may be absent. Only absence gives `None`: no text does."""
    return ValueType(type.kafka, type.parse, lambda value: "" if value is None else type.show(value), type.unit)


@dataclass(frozen=True, eq=False)
class Setting(Generic[T]):
    """One setting. Compared and hashed by identity, so reading a value is one dictionary look-up."""

    name: str
    type: ValueType[T]
    _: KW_ONLY
    default: T
    doc: str
    scope: Scope = Scope.BROKER
    """What the setting belongs to. For a setting of topics only, `topic` is its name."""
    topic: str | None = None
    """The name under which each topic may override it."""
    at_least: float | None = None
    at_most: float | None = None
    also: tuple[T, ...] = ()
    """Values allowed outside the bounds."""
    not_below: "Setting[Any] | None" = None
    not_above: tuple["Setting[Any]", ...] = ()
    below: "Setting[Any] | None" = None
    """Bounds given by other settings."""
    one_of: tuple[str, ...] = ()
    any_case: bool = False
    """`one_of` ignores case."""
    may_be_empty: bool = True
    live: bool = False
    """A running cluster accepts a new value. Settings of topics always do."""
    per_broker: bool = False
    """A running broker accepts a new value for itself only, not for the whole cluster."""
    per_listener: bool = False
    """A running broker accepts a new value for one listener only: under `listener.name.NAME.` and the name."""
    internal: bool = False
    """For tests and experiments; not documented."""
    inert: str = ""
    """Why it has no effect yet; the value is accepted and described all the same."""
    falls_back_to: tuple[tuple["Setting[Any]", int], ...] = ()
    """Where the value comes from, in this order and times a factor, if the broker's own name is not set. One of them
    has the default."""
    overruled_by: "Setting[Any] | None" = None
    """The setting that takes precedence if it has a value."""

    def __repr__(self) -> str:
        return f"<setting {self.name}>"

    @property
    def on_broker(self) -> bool:
        return self.scope is Scope.BROKER

    @property
    def update(self) -> Update:
        if self.per_broker:
            return Update.PER_BROKER
        if self.live or self.topic is not None or not self.on_broker:
            return Update.CLUSTER_WIDE
        return Update.READ_ONLY

    @property
    def secret(self) -> bool:
        return self.type.kafka == "PASSWORD"

    @property
    def allowed(self) -> str:
        """The constraints beyond the type, in words; empty if there are none."""
        limits = []
        if self.one_of:
            limits.append("one of " + ", ".join(self.one_of) + (" in letters of either case" if self.any_case else ""))
        if self.at_least is not None and self.at_most is not None:
            limits.append(f"{self.at_least} to {self.at_most}")
        elif self.at_least is not None:
            limits.append(f"at least {self.at_least}")
        elif self.at_most is not None:
            limits.append(f"at most {self.at_most}")
        if not self.may_be_empty:
            limits.append("not empty")
        limits.extend(f"or {self.type.show(value)}" for value in self.also)
        return " ".join(limits) if self.also else ", ".join(limits)

    def parse(self, text: str) -> T:
        """The value of `text`; `ValueError` says what would have been accepted."""
        value = self.type.parse(text.strip())
        if not self._accepts(value):
            raise ValueError(self.allowed)
        return value

    def _accepts(self, value: Any) -> bool:
        if value in self.also:
            return True
        if isinstance(value, tuple | str):
            items = value if isinstance(value, tuple) else (value,)
            return (self.may_be_empty or bool(value)) and all(not self.one_of or self._names(item) for item in items)
        if isinstance(value, Secret):
            return True
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    def _names(self, item: str) -> bool:
        return (item.upper() if self.any_case else item) in self.one_of


setting = Setting
