"""Values of settings, in layers.

Precedence, highest first: the topic's (or group's) own value, this broker's dynamic value, the cluster's dynamic value,
the broker's file, the default.

Rule 1: every text is parsed when its layer is created; reading a value is one dictionary look-up and cannot fail.
Rule 2: every value records its layer and name, which DescribeConfigs shows as source and synonyms.
Rule 3: a layer takes precedence as a whole. A coarser unit in it (log.retention.hours) beats a finer one
        (log.retention.ms) in the layers below.
Rule 4: all problems are reported at once, each with the name, the value and what is allowed.
Rule 5: an unknown name is refused for a topic or group. A broker keeps it in `unknown` for a warning, because Kafka's
        own file must work and may contain settings of plugins.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

from ottla.config.network import QUEUED_MAX_REQUEST_BYTES, SOCKET_REQUEST_MAX_BYTES
from ottla.config.notation import Scope, Setting, Update
from ottla.config.quorum import BROKER_ID, NODE_ID
from ottla.config.registry import (
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    SETTINGS,
    TOPIC_SETTINGS,
    Known,
    broker_setting,
    unknown_broker_setting,
    unknown_client_metrics_setting,
    unknown_group_setting,
    unknown_topic_setting,
)
from ottla.wire.errors import Error, Refused

_HINTS_MAX = 10

T = TypeVar("T")
Values = dict[Setting[Any], Any]


class InvalidConfig(Refused):
    """Invalid settings; `problems` has one sentence for each."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        super().__init__(Error.INVALID_CONFIG, "; ".join(self.problems))


class ConfigSource(IntEnum):
    """Where a value comes from, by the numbers that DescribeConfigs sends."""

    TOPIC = 1
    BROKER = 2
    """Set on the running cluster for this broker."""
    CLUSTER = 3
    """Set on the running cluster for every broker."""
    BROKER_FILE = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigSynonym(NamedTuple):
    """One layer that sets a value: its source, the name used there, the text (`None` for a secret)."""

    source: ConfigSource
    name: str
    text: str | None


class _Layer(NamedTuple):
    source: ConfigSource
    texts: dict[str, str]
    values: Values


class _Broker(NamedTuple):
    """The layers that all topics and groups of a broker share."""

    layers: tuple[_Layer, ...]
    """Highest precedence first."""
    values: Values
    of_topics: Values
    of_groups: Values


class _Own(Values):
    """The values that a topic or group may override; everything else is looked up in the broker's."""

    __slots__ = ("broker",)

    def __init__(self, own: Values, broker: Values) -> None:
        super().__init__(own)
        self.broker = broker

    def __missing__(self, setting: Setting[Any]) -> Any:
        return self.broker[setting]


class Config:
    """The effective values of one topic or group, or of the broker. Immutable."""

    __slots__ = ("_broker", "_own", "_values")

    def __init__(self, broker: _Broker, own: _Layer | None, values: Values) -> None:
        """Use `of`, then `for_topic` and the like: they share the broker's layers."""
        self._broker = broker
        self._own = own
        self._values = values

    @classmethod
    def of(
        cls,
        overrides: Mapping[str, str] | None = None,
        *,
        broker: Mapping[str, str] | None = None,
        on_cluster: Mapping[str, str] | None = None,
        on_broker: Mapping[str, str] | None = None,
    ) -> "Config":
        """The configuration of a broker: its file, and the dynamic values of the cluster and of this broker.

        With `overrides`, by the topic's names: the configuration of a topic there.
        """
        problems: list[str] = []
        layers = tuple(
            _broker_layer(source, texts or {}, problems)
            for source, texts in (
                (ConfigSource.BROKER, on_broker),
                (ConfigSource.CLUSTER, on_cluster),
                (ConfigSource.BROKER_FILE, _both_node_ids(broker or {})),
            )
        )
        values = _stacked(layers)
        shared = _Broker(
            layers,
            values,
            {setting: values[setting] for setting in TOPIC_SETTINGS.values()},
            {setting: values[setting] for setting in GROUP_SETTINGS.values()},
        )
        problems.extend(_broker_conflicts(values))
        if overrides:
            topic_layer, topic_values = _topic(shared, overrides, problems)
            _refuse(problems)
            return cls(shared, topic_layer, topic_values)
        _refuse(problems)
        return cls(shared, None, values)

    def with_dynamic(self, *, on_cluster: Mapping[str, str], on_broker: Mapping[str, str]) -> "Config":
        """The same broker with other dynamic values."""
        return Config.of(broker=self._broker.layers[-1].texts, on_cluster=on_cluster, on_broker=on_broker)

    def for_topic(self, overrides: Mapping[str, str]) -> "Config":
        """The same broker's values with a topic's overrides."""
        if not overrides:
            return Config(self._broker, None, self._broker.values)
        problems: list[str] = []
        layer, values = _topic(self._broker, overrides, problems)
        _refuse(problems)
        return Config(self._broker, layer, values)

    def for_group(self, overrides: Mapping[str, str]) -> "Config":
        """The same broker's values with a group's overrides."""
        problems: list[str] = []
        layer = _own_layer(ConfigSource.GROUP, GROUP_SETTINGS, overrides, unknown_group_setting, problems)
        values = _Own(self._broker.of_groups | layer.values, self._broker.values)
        problems.extend(_conflicts(GROUP_SETTINGS.values(), values))
        _refuse(problems)
        return Config(self._broker, layer, values)

    def for_client_metrics(self, overrides: Mapping[str, str]) -> "Config":
        """The same broker's values with the settings of one client metrics subscription."""
        problems: list[str] = []
        known = CLIENT_METRICS_SETTINGS
        layer = _own_layer(ConfigSource.CLIENT_METRICS, known, overrides, unknown_client_metrics_setting, problems)
        _refuse(problems)
        return Config(self._broker, layer, _Own(layer.values, self._broker.values))

    def __getitem__(self, setting: Setting[T]) -> T:
        return self._values[setting]  # type: ignore[no-any-return]

    @property
    def overrides(self) -> dict[str, str]:
        return dict(self._own.texts) if self._own else {}

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names in the broker's layers that are not settings, in the file's order."""
        names = [name for layer in reversed(self._broker.layers) for name in layer.texts]
        return tuple(dict.fromkeys(name for name in names if broker_setting(name) is None))

    def warnings(self) -> list[str]:
        """A sentence about each unknown name."""
        return [unknown_broker_setting(name) for name in self.unknown]

    def text(self, setting: Setting[Any]) -> str | None:
        """The value as DescribeConfigs shows it; `None` if there is none, or it is a secret."""
        value = self[setting]
        return None if value is None or setting.secret else setting.type.show(value)

    def origins(self, setting: Setting[Any]) -> list[ConfigSynonym]:
        """All values named for `setting`, highest precedence first."""
        origins = []
        if self._own:
            for one in (setting.overruled_by, setting):
                name = one and (one.topic or one.name)
                if one and name in self._own.texts:
                    # In normalized form: a list without duplicates, a number without spaces.
                    origins.append(_origin(one, self._own.source, name, one.type.show(self._own.values[one])))
        names = _names_on_broker(setting)
        for layer in self._broker.layers:
            origins += [
                _origin(one, layer.source, one.name, layer.texts[one.name]) for one in names if one.name in layer.texts
            ]
        stand_in = names[-1] if names else setting
        if stand_in.default is not None and setting.scope not in (Scope.TOPIC, Scope.CLIENT_METRICS):
            text = stand_in.type.show(stand_in.default)
            origins.append(_origin(stand_in, ConfigSource.DEFAULT, stand_in.name, text))
        return origins

    def source(self, setting: Setting[Any]) -> ConfigSource:
        origins = self.origins(setting)
        return origins[0].source if origins else ConfigSource.DEFAULT

    def is_set(self, setting: Setting[Any]) -> bool:
        return self.source(setting) is not ConfigSource.DEFAULT


_DEFAULTS: Values = {setting: setting.default for setting in SETTINGS}
_WITH_FALLBACKS = tuple(setting for setting in SETTINGS if setting.falls_back_to)
_OVERRULED = tuple(setting for setting in SETTINGS if setting.overruled_by)
_BOUND_BY_OTHERS = tuple(setting for setting in SETTINGS if setting.not_below or setting.not_above or setting.below)
_TOPIC_BOUND_BY_OTHERS = tuple(setting for setting in _BOUND_BY_OTHERS if setting.topic)


def _names_on_broker(setting: Setting[Any]) -> list[Setting[Any]]:
    own = [setting] if setting.on_broker else []
    return own + [fallback for fallback, _ in setting.falls_back_to]


def _origin(setting: Setting[Any], source: ConfigSource, name: str, text: str) -> ConfigSynonym:
    return ConfigSynonym(source, name, None if setting.secret else text)


def _both_node_ids(file: Mapping[str, str]) -> Mapping[str, str]:
    """node.id and broker.id are synonyms: a file that has one has both."""
    given = file.get(NODE_ID.name, file.get(BROKER_ID.name))
    return file if given is None else {**file, NODE_ID.name: given, BROKER_ID.name: file.get(BROKER_ID.name, given)}


def _broker_layer(source: ConfigSource, texts: Mapping[str, str], problems: list[str]) -> _Layer:
    values: Values = {}
    for name, text in texts.items():
        setting = broker_setting(name)
        if setting is None:
            continue
        if source is not ConfigSource.BROKER_FILE and (reason := _cannot_change(setting, name, source)):
            problems.append(reason)
            continue
        value = _parsed(setting, name, text, problems)
        if name == setting.name and value is not None:
            values[setting] = value
    return _Layer(source, dict(texts), values)


def _cannot_change(setting: Setting[Any], name: str, source: ConfigSource) -> str:
    """Why a running cluster cannot change this setting; empty if it can."""
    if name != setting.name:
        if source is ConfigSource.CLUSTER and setting.update is not Update.CLUSTER_WIDE:
            return f"{name}: every broker has its own value of this; set it for one broker"
        return ""
    if setting.update is Update.READ_ONLY:
        return f"{name}: cannot change while the broker runs; set it in the broker's file and start it again"
    if setting.per_listener:
        return f"{name}: can change only for one listener; set listener.name.NAME.{name}"
    if source is ConfigSource.CLUSTER and setting.update is Update.PER_BROKER:
        return f"{name}: every broker has its own value of this; set it for one broker"
    return ""


def _own_layer(
    source: ConfigSource, known: Known, texts: Mapping[str, str], unknown: Callable[[str], str], problems: list[str]
) -> _Layer:
    values: Values = {}
    for name, text in texts.items():
        setting = known.get(name)
        if setting is None:
            # Searching for similar names takes time; after some problems it does not help any more.
            problems.append(unknown(name) if len(problems) < _HINTS_MAX else f"{name}: no such setting")
        elif (value := _parsed(setting, name, text, problems)) is not None:
            values[setting] = value
    return _Layer(source, dict(texts), values)


def _topic(broker: _Broker, overrides: Mapping[str, str], problems: list[str]) -> tuple[_Layer, Values]:
    layer = _own_layer(ConfigSource.TOPIC, TOPIC_SETTINGS, overrides, unknown_topic_setting, problems)
    values = _Own(broker.of_topics | layer.values, broker.values)
    for setting in _OVERRULED:
        if setting.overruled_by in layer.values:
            values[setting] = layer.values[setting.overruled_by]
    problems.extend(_conflicts(_TOPIC_BOUND_BY_OTHERS, values))
    return layer, values


def _parsed(setting: Setting[Any], name: str, text: str, problems: list[str]) -> Any:
    try:
        return setting.parse(text)
    except ValueError as error:
        problems.append(f"{name}={text}: must be {error}")
        return None


def _stacked(layers: tuple[_Layer, ...]) -> Values:
    values = dict(_DEFAULTS)
    for layer in reversed(layers):
        if not layer.values:
            continue
        for setting in _WITH_FALLBACKS:
            for fallback, factor in setting.falls_back_to:
                if fallback in layer.values:
                    value = layer.values[fallback]
                    # A negative time means "no limit" in every unit.
                    values[setting] = value if factor == 1 else max(value * factor, -1)
                    break
        values.update(layer.values)
    return values


def _conflicts(settings: Iterable[Setting[Any]], values: Values) -> Iterable[str]:
    """The errors of settings that are valid one by one but contradict each other."""

    def shown(setting: Setting[Any]) -> str:
        name = setting.topic if setting.topic and isinstance(values, _Own) else setting.name
        return f"{name}={setting.type.show(values[setting])}"

    for setting in settings:
        value = values[setting]
        if setting.not_below and value < values[setting.not_below]:
            yield f"{shown(setting)} must not be less than {shown(setting.not_below)}"
        for limit in setting.not_above:
            if value > values[limit]:
                yield f"{shown(setting)} must not exceed {shown(limit)}"
        if setting.below and value >= values[setting.below]:
            yield f"{shown(setting)} must be less than {shown(setting.below)}"


def _broker_conflicts(values: Values) -> Iterable[str]:
    yield from _conflicts((setting for setting in _BOUND_BY_OTHERS if setting.on_broker), values)
    if values[BROKER_ID] not in (BROKER_ID.default, values[NODE_ID]):
        yield f"{BROKER_ID.name}={values[BROKER_ID]} must be the same as {NODE_ID.name}={values[NODE_ID]}"
    queued, one = QUEUED_MAX_REQUEST_BYTES, SOCKET_REQUEST_MAX_BYTES
    if 0 < values[queued] < values[one]:
        yield f"{queued.name}={values[queued]} must not be less than {one.name}={values[one]}"


def _refuse(problems: list[str]) -> None:
    if problems:
        raise InvalidConfig(problems)
