"""The entries of DescribeConfigs: the effective value of a setting, its source, and its synonyms.

Rule 1: values of secrets are never returned. Neither are values of unknown settings, because they may be secrets.
Rule 2: if a setting with a coarser unit provides the value (log.retention.hours for log.retention.ms), it is listed
        among the synonyms under its own name.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from ottla.config import (
    BROKER_SETTINGS,
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    Config,
    ConfigSource,
    Setting,
    Update,
)
from ottla.config.config import ConfigSynonym

_TYPES: Final = {
    name: number
    for number, name in enumerate(
        ("UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD")
    )
}


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    source: int
    read_only: bool
    sensitive: bool
    synonyms: list[ConfigSynonym]
    type: int
    doc: str | None


def topic_entries(config: Config, names: Iterable[str] | None) -> list[ConfigEntry]:
    """The entries of a topic with this `Config`. Only those in `names`, unless that is None."""
    return _entries(config, TOPIC_SETTINGS, names)


def group_entries(config: Config, names: Iterable[str] | None) -> list[ConfigEntry]:
    return _entries(config, GROUP_SETTINGS, names)


def client_metrics_entries(config: Config, names: Iterable[str] | None) -> list[ConfigEntry]:
    return _entries(config, CLIENT_METRICS_SETTINGS, names)


def broker_entries(config: Config, names: Iterable[str] | None) -> list[ConfigEntry]:
    """The entries of this broker, including unknown names in its file."""
    wanted = None if names is None else set(names)
    unknown = [
        ConfigEntry(name, None, ConfigSource.BROKER_FILE, True, True, [], _TYPES["UNKNOWN"], None)
        for name in config.unknown
        if wanted is None or name in wanted
    ]
    return _entries(config, BROKER_SETTINGS, wanted) + unknown


def cluster_entries(texts: dict[str, str], names: Iterable[str] | None) -> list[ConfigEntry]:
    """The entries of the cluster-wide dynamic settings only."""
    wanted = None if names is None else set(names)
    entries = []
    for name in sorted(texts):
        if wanted is not None and name not in wanted:
            continue
        setting = BROKER_SETTINGS.get(name)
        secret = setting is None or setting.secret
        value = None if secret else texts[name]
        entries.append(
            ConfigEntry(
                name,
                value,
                ConfigSource.CLUSTER,
                setting is None or setting.update is Update.READ_ONLY,
                secret,
                [ConfigSynonym(ConfigSource.CLUSTER, name, value)],
                _type_of(setting),
                setting.doc if setting is not None else None,
            )
        )
    return entries


def _entries(config: Config, known: dict[str, Setting[Any]], names: Iterable[str] | None) -> list[ConfigEntry]:
    wanted = None if names is None else set(names)
    return [
        _entry(config, name, known[name])
        for name in sorted(known)
        if (wanted is None or name in wanted) and not known[name].internal
    ]


def _entry(config: Config, name: str, setting: Setting[Any]) -> ConfigEntry:
    synonyms = config.origins(setting)
    return ConfigEntry(
        name=name,
        value=config.text(setting),
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        read_only=setting.update is Update.READ_ONLY,
        sensitive=setting.secret,
        synonyms=synonyms,
        type=_type_of(setting),
        doc=setting.doc,
    )


def _type_of(setting: Setting[Any] | None) -> int:
    return _TYPES.get(setting.type.kafka, 0) if setting is not None else _TYPES["UNKNOWN"]
