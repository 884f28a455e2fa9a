"""Values of settings, in layers: default < the broker's file < the topic's override.

Rule 1: every text is parsed when the `Config` is made; reading a value is one dictionary look-up and cannot fail.
Rule 2: every value knows the layer and the name it came from, which DescribeConfigs shows as source and synonyms.
Rule 3: all that is wrong is said at once, each with the name, the value and what is allowed.
Rule 4: an unknown name is refused for a topic; in the broker's file it is kept in `unknown` for a warning, because
        Kafka's own file must work and holds settings of parts that are not built yet.
"""

import difflib
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

from ottla.config import log, topic
from ottla.config.notation import Setting
from ottla.wire.errors import Error, Refused

T = TypeVar("T")

SETTINGS: tuple[Setting[Any], ...] = tuple(
    value for module in (topic, log) for value in vars(module).values() if isinstance(value, Setting)
)
BROKER_SETTINGS: dict[str, Setting[Any]] = {setting.name: setting for setting in SETTINGS if setting.on_broker}
TOPIC_SETTINGS: dict[str, Setting[Any]] = {setting.topic: setting for setting in SETTINGS if setting.topic}


class InvalidConfig(Refused):
    """Settings that cannot be; `problems` has one sentence for each."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        super().__init__(Error.INVALID_CONFIG, "; ".join(self.problems))


class Source(IntEnum):
    """Where a value comes from, by the numbers that DescribeConfigs sends."""

    TOPIC = 1
    BROKER_FILE = 4
    DEFAULT = 5


class Origin(NamedTuple):
    """One place that names a value for a setting: the layer, the name used there, the text of the value."""

    source: Source
    name: str
    text: str


class Config:
    """What counts for one topic, or for the broker where no topic says otherwise. Never changes."""

    __slots__ = ("_broker", "_topic", "_values", "unknown")

    def __init__(self, broker: Mapping[str, str], topic: Mapping[str, str]) -> None:
        self._broker = dict(broker)
        self._topic = dict(topic)
        self.unknown = tuple(name for name in broker if name not in BROKER_SETTINGS)
        problems = [_unknown_topic_setting(name) for name in topic if name not in TOPIC_SETTINGS]
        set_broker = _parsed(BROKER_SETTINGS, broker, problems)
        set_topic = _parsed(TOPIC_SETTINGS, topic, problems)
        self._values = {setting: _resolved(setting, set_broker, set_topic) for setting in SETTINGS}
        problems.extend(_conflicts(self))
        if problems:
            raise InvalidConfig(problems)

    @classmethod
    def of(cls, overrides: Mapping[str, str] | None = None, *, broker: Mapping[str, str] | None = None) -> "Config":
        """A topic's overrides, by the topic's names, over a broker's file, by the broker's names; or over defaults."""
        return cls(broker or {}, overrides or {})

    def for_topic(self, overrides: Mapping[str, str]) -> "Config":
        """The same broker's values with a topic's overrides."""
        return Config(self._broker, overrides)

    def __getitem__(self, setting: Setting[T]) -> T:
        return self._values[setting]  # type: ignore[no-any-return]

    @property
    def overrides(self) -> dict[str, str]:
        return dict(self._topic)

    def origins(self, setting: Setting[Any]) -> list[Origin]:
        """Everything that names a value for `setting`, what counts first."""
        overruling = setting.overruled_by
        topic_names = [one.topic for one in (overruling, setting) if one and one.topic in self._topic]
        chain = [setting, *(fallback for fallback, _ in setting.falls_back_to)] if setting.on_broker else []
        origins = [Origin(Source.TOPIC, name, self._topic[name]) for name in topic_names if name]
        origins += [
            Origin(Source.BROKER_FILE, one.name, self._broker[one.name]) for one in chain if one.name in self._broker
        ]
        stand_in = chain[-1] if chain else setting
        if stand_in.default is not None:
            origins.append(Origin(Source.DEFAULT, stand_in.name, stand_in.type.show(stand_in.default)))
        return origins

    def source(self, setting: Setting[Any]) -> Source:
        origins = self.origins(setting)
        return origins[0].source if origins else Source.DEFAULT


def _parsed(
    known: Mapping[str, Setting[Any]], texts: Mapping[str, str], problems: list[str]
) -> dict[Setting[Any], Any]:
    values = {}
    for name, text in texts.items():
        setting = known.get(name)
        if setting is None:
            continue
        try:
            values[setting] = setting.parse(text)
        except ValueError as error:
            problems.append(f"{name}={text}: must be {error}")
    return values


def _resolved(setting: Setting[Any], broker: Mapping[Setting[Any], Any], topic: Mapping[Setting[Any], Any]) -> Any:
    if setting.overruled_by is not None and setting.overruled_by in topic:
        return topic[setting.overruled_by]
    if setting in topic:
        return topic[setting]
    if setting in broker:
        return broker[setting]
    for fallback, factor in setting.falls_back_to:
        if fallback in broker:
            value = broker[fallback]
            # A negative time means "no limit" in every unit.
            return value if factor == 1 else max(value * factor, -1)
    return setting.default


def _conflicts(config: Config) -> Iterable[str]:
    """What is wrong between settings that are each right."""
    least, most = topic.MIN_COMPACTION_LAG_MS, topic.MAX_COMPACTION_LAG_MS
    if config[least] > config[most]:
        yield f"{least.topic}={config[least]} must not exceed {most.topic}={config[most]}"


def _unknown_topic_setting(name: str) -> str:
    if name in BROKER_SETTINGS and (its := BROKER_SETTINGS[name].topic):
        return f"{name}: this is the broker's name; for a topic it is {its}"
    if name in BROKER_SETTINGS:
        return f"{name}: only a broker has this setting, not a topic"
    near = difflib.get_close_matches(name, TOPIC_SETTINGS, 1)
    return f"{name}: no such topic setting" + (f"; did you mean {near[0]}?" if near else "")
