"""Settings as DescribeConfigs tells them: the value that counts, where it comes from, and everything that names one.

Rule 1: secrets are never told, and neither is the value of a name that is no setting: nobody can say it is no secret.
Rule 2: where a coarser unit stands in for a setting (log.retention.hours for log.retention.ms), it is told among the
        synonyms under its own name.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from ottla.config import (
    BROKER_SETTINGS,
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    Config,
    Setting,
    Source,
    Update,
)
from ottla.config.config import Origin

_TYPES: Final = {
    name: number
    for number, name in enumerate(
        ("UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD")
    )
}


class Entry(NamedTuple):
    name: str
    value: str | None
    source: int
    read_only: bool
    sensitive: bool
    synonyms: list[Origin]
    type: int
    doc: str | None


def topic_entries(config: Config, names: Iterable[str] | None) -> list[Entry]:
    """Of one topic, by its `Config`; `names` restricts them."""
    return _entries(config, TOPIC_SETTINGS, names)


def group_entries(config: Config, names: Iterable[str] | None) -> list[Entry]:
    return _entries(config, GROUP_SETTINGS, names)


def client_metrics_entries(config: Config, names: Iterable[str] | None) -> list[Entry]:
    return _entries(config, CLIENT_METRICS_SETTINGS, names)


def broker_entries(config: Config, names: Iterable[str] | None) -> list[Entry]:
    """Of this broker, unknown names of its file included."""
    wanted = None if names is None else set(names)
    unknown = [
        Entry(name, None, Source.BROKER_FILE, True, True, [], _TYPES["UNKNOWN"], None)
        for name in config.unknown
        if wanted is None or name in wanted
    ]
    return _entries(config, BROKER_SETTINGS, wanted) + unknown


def cluster_entries(texts: dict[str, str], names: Iterable[str] | None) -> list[Entry]:
    """What was set on the running cluster for every broker, and nothing else."""
    wanted = None if names is None else set(names)
    entries = []
    for name in sorted(texts):
        if wanted is not None and name not in wanted:
            continue
        setting = BROKER_SETTINGS.get(name)
        secret = setting is None or setting.secret
        value = None if secret else texts[name]
        entries.append(
            Entry(
                name,
                value,
                Source.CLUSTER,
                setting is None or setting.update is Update.READ_ONLY,
                secret,
                [Origin(Source.CLUSTER, name, value)],
                _type_of(setting),
                setting.doc if setting is not None else None,
            )
        )
    return entries


def _entries(config: Config, known: dict[str, Setting[Any]], names: Iterable[str] | None) -> list[Entry]:
    wanted = None if names is None else set(names)
    return [
        _entry(config, name, known[name])
        for name in sorted(known)
        if (wanted is None or name in wanted) and not known[name].internal
    ]


def _entry(config: Config, name: str, setting: Setting[Any]) -> Entry:
    synonyms = config.origins(setting)
    return Entry(
        name=name,
        value=config.text(setting),
        source=synonyms[0].source if synonyms else Source.DEFAULT,
        read_only=setting.update is Update.READ_ONLY,
        sensitive=setting.secret,
        synonyms=synonyms,
        type=_type_of(setting),
        doc=setting.doc,
    )


def _type_of(setting: Setting[Any] | None) -> int:
    return _TYPES.get(setting.type.kafka, 0) if setting is not None else _TYPES["UNKNOWN"]
