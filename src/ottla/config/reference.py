"""Generates the documentation's table of settings from the declarations."""

from collections.abc import Iterable
from typing import Any

from ottla.config import log, topic
from ottla.config.notation import (
    DAY,
    DOUBLE_MAX,
    HOUR,
    INT_MAX,
    LONG_MAX,
    MINUTE,
    SECOND,
    GiB,
    KiB,
    MiB,
    Scope,
    Setting,
    Update,
)
from ottla.config.registry import AREAS, SETTINGS

HEAD = """\
# Settings

Made from the declarations in `src/ottla/config` by `python -m ottla.config`; change it there.

Names, types, defaults and bounds are Apache Kafka 4.3's, so a `server.properties` works unchanged; where a default is
not Kafka's, the text says why. Names that begin with `ottla.` are Ottla's own. What counts first: the topic's or
group's own value, the value set on the running cluster for this broker, the one set for every broker, the broker's
file, the default. *Live* settings take a new value without a restart, *live per broker* ones for one broker at a
time. A setting marked *no effect yet* is accepted and described, and does nothing.
"""
UNITS = {
    "ms": ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s")),
    "bytes": ((GiB, "GiB"), (MiB, "MiB"), (KiB, "KiB")),
}


def settings_page() -> str:
    """One section for topics, one per area of the broker's settings, one for groups, one for clients' metrics."""
    parts = [HEAD, *_section("Settings of topics", (setting for setting in SETTINGS if setting.topic))]
    for area in AREAS[1:]:
        modules = (topic, log) if area is log else (area,)
        declared = (value for module in modules for value in vars(module).values() if isinstance(value, Setting))
        title = (area.__doc__ or "").partition("\n")[0].rstrip(".")
        parts += _section(title, (setting for setting in declared if setting.on_broker and not setting.topic))
    for title, scope in (("groups", Scope.GROUP), ("subscriptions to clients' metrics", Scope.CLIENT_METRICS)):
        parts += _section(f"Settings of {title}", (setting for setting in SETTINGS if setting.scope is scope))
    return "\n".join(parts)


def _section(title: str, settings: Iterable[Setting[Any]]) -> list[str]:
    shown = [setting for setting in settings if not setting.internal]
    return [f"## {title}\n", *(_entry(setting) for setting in sorted(shown, key=lambda one: one.topic or one.name))]


def _entry(setting: Setting[Any]) -> str:
    facts = [f"default {_default(setting)}"]
    if setting.allowed:
        facts.append(setting.allowed)
    if setting.topic and setting.on_broker:
        names = [setting.name, *(fallback.name for fallback, _ in setting.falls_back_to)]
        facts.append("broker: " + ", then ".join(f"`{name}`" for name in names))
    elif setting.topic:
        facts.append("topics only")
    elif setting.falls_back_to:
        facts.append("broker: " + ", then ".join(f"`{fallback.name}`" for fallback, _ in setting.falls_back_to))
    facts += [f"not below `{setting.not_below.topic or setting.not_below.name}`"] if setting.not_below else []
    facts += [f"not above `{limit.topic or limit.name}`" for limit in setting.not_above]
    facts += [f"below `{setting.below.name}`"] if setting.below else []
    if setting.on_broker and not setting.topic and setting.update is not Update.READ_ONLY:
        facts.append("live per broker" if setting.update is Update.PER_BROKER else "live")
    if setting.inert:
        facts.append(f"**no effect yet**: {setting.inert}")
    kind = f"{setting.type.kafka.lower()}{', ' + setting.type.unit if setting.type.unit else ''}"
    return f"### `{setting.topic or setting.name}`\n{setting.doc}\n\n*{kind}* · {' · '.join(facts)}\n"


def _default(setting: Setting[Any]) -> str:
    value = setting.default
    if value is None:
        return "none"
    if value in (LONG_MAX, INT_MAX, DOUBLE_MAX):
        return "unlimited"
    text = f"`{setting.type.show(value)}`" if value not in ((), "") else "empty"
    for size, unit in UNITS.get(setting.type.unit, ()):
        if isinstance(value, int) and value >= size and value % size == 0:
            return f"{text} ({value // size} {unit})"
    return text
