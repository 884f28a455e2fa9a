"""All settings by name, and error texts for unknown names."""

import difflib
import re
from collections.abc import Iterable
from typing import Any

from ottla.config import (
    groups,
    log,
    metrics,
    network,
    oauth,
    quorum,
    remote,
    replication,
    sasl,
    security,
    share,
    streams,
    topic,
    transactions,
)
from ottla.config.notation import Scope, Setting

Known = dict[str, Setting[Any]]

AREAS = (
    *(topic, log, network, quorum, replication, groups, streams, share, transactions),
    *(metrics, security, sasl, oauth, remote),
)

SETTINGS: tuple[Setting[Any], ...] = tuple(
    value for area in AREAS for value in vars(area).values() if isinstance(value, Setting)
)
BROKER_SETTINGS: Known = {setting.name: setting for setting in SETTINGS if setting.on_broker}
TOPIC_SETTINGS: Known = {setting.topic: setting for setting in SETTINGS if setting.topic}
GROUP_SETTINGS: Known = {setting.name: setting for setting in SETTINGS if setting.scope is Scope.GROUP}
CLIENT_METRICS_SETTINGS: Known = {
    setting.name: setting for setting in SETTINGS if setting.scope is Scope.CLIENT_METRICS
}

_OF_A_LISTENER = re.compile(r"listener\.name\.[^.]*\.(.*)")
# For one mechanism of a listener: listener.name.NAME.MECHANISM.sasl.jaas.config.
_OF_A_MECHANISM = tuple(
    setting.name
    for setting in (
        sasl.SASL_JAAS_CONFIG,
        sasl.SASL_LOGIN_CALLBACK_HANDLER_CLASS,
        sasl.SASL_LOGIN_CLASS,
        sasl.SASL_SERVER_CALLBACK_HANDLER_CLASS,
        sasl.CONNECTIONS_MAX_REAUTH_MS,
    )
)
_GONE = {
    "inter.broker.protocol.version": "metadata.version is a feature now, which the cluster keeps",
    "log.message.format.version": "there is one format of record batches",
    "log.message.timestamp.difference.max.ms": (
        "log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms took its place"
    ),
}


def broker_setting(name: str) -> Setting[Any] | None:
    """The broker setting that `name` sets, for the whole broker or under `listener.name.NAME.` for one listener."""
    if name in BROKER_SETTINGS:
        return BROKER_SETTINGS[name]
    match = _OF_A_LISTENER.fullmatch(name)
    if match is None:
        return None
    base = next((known for known in _OF_A_MECHANISM if match[1].endswith("." + known)), match[1])
    return BROKER_SETTINGS.get(base)


def unknown_broker_setting(name: str) -> str:
    """The error text for a name in a broker's file that is not a broker setting."""
    if name in _GONE:
        return f"{name}: no longer a setting; {_GONE[name]}"
    if name.startswith("zookeeper."):
        return f"{name}: no longer a setting; there is no ZooKeeper"
    if name in TOPIC_SETTINGS and TOPIC_SETTINGS[name].on_broker:
        return f"{name}: this is a topic's name; for a broker it is {TOPIC_SETTINGS[name].name}"
    return f"{name}: no such broker setting{_hint(name, BROKER_SETTINGS)}"


def unknown_topic_setting(name: str) -> str:
    if name in BROKER_SETTINGS and (its := BROKER_SETTINGS[name].topic):
        return f"{name}: this is the broker's name; for a topic it is {its}"
    if name in BROKER_SETTINGS:
        return f"{name}: only a broker has this setting, not a topic"
    return f"{name}: no such topic setting{_hint(name, TOPIC_SETTINGS)}"


def unknown_group_setting(name: str) -> str:
    return f"{name}: no such group setting{_hint(name.removeprefix('group.'), GROUP_SETTINGS)}"


def unknown_client_metrics_setting(name: str) -> str:
    return f"{name}: no such setting of client metrics; there are {', '.join(CLIENT_METRICS_SETTINGS)}"


def _hint(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else ""
