"""The documentation's table of settings, made from the declarations."""

from typing import Any

from ottla.config.config import SETTINGS
from ottla.config.notation import DAY, DOUBLE_MAX, HOUR, INT_MAX, LONG_MAX, MINUTE, SECOND, GiB, KiB, MiB, Setting

HEAD = """\
# Settings

Made from the declarations in `src/ottla/config` by `python -m ottla.config`; change it there.

Names, types, defaults and bounds are Apache Kafka 4.3's, so a `server.properties` works unchanged. Names that begin
with `ottla.` are Ottla's own. A value counts in this order: the topic's, the broker's, the default. *Live* settings
take a new value without a restart. A setting marked *no effect yet* is accepted and described, and does nothing.
"""
UNITS = {
    "ms": ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s")),
    "bytes": ((GiB, "GiB"), (MiB, "MiB"), (KiB, "KiB")),
}


def settings_page() -> str:
    shown = [setting for setting in SETTINGS if not setting.internal]
    parts = [
        HEAD,
        "## Settings of topics\n",
        *(_entry(setting) for setting in sorted(shown, key=lambda one: one.topic or "") if setting.topic),
        "## Settings of the broker alone\n",
        *(_entry(setting) for setting in sorted(shown, key=lambda one: one.name) if not setting.topic),
    ]
    return "\n".join(parts)


def _entry(setting: Setting[Any]) -> str:
    facts = [f"default {_default(setting)}"]
    if setting.allowed:
        facts.append(setting.allowed)
    if setting.topic and setting.on_broker:
        names = [setting.name, *(fallback.name for fallback, _ in setting.falls_back_to)]
        facts.append("broker: " + ", then ".join(f"`{name}`" for name in names))
    elif setting.topic:
        facts.append("topics only")
    if setting.is_live and not setting.topic:
        facts.append("live")
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
    text = f"`{setting.type.show(value)}`" if value != () else "empty"
    for size, unit in UNITS.get(setting.type.unit, ()):
        if isinstance(value, int) and value >= size and value % size == 0:
            return f"{text} ({value // size} {unit})"
    return text
