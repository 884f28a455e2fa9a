"""Broker loggers in DescribeConfigs and IncrementalAlterConfigs: the log levels of this process.

Log levels belong to the process, not to the cluster: nothing is written to the metadata log.
"""

from ottla.broker.network.dispatch import Call
from ottla.config import ConfigSource
from ottla.core.metadata.config_entries import ConfigEntry
from ottla.core.metadata.configs import ConfigChange, ConfigOperation, ResourceChange, check_changes
from ottla.observe.levels import LEVELS, ROOT, levels, set_level, unset_level
from ottla.observe.trace import trace
from ottla.wire.errors import Error, Refused

_UNKNOWN_TYPE = 0


def logger_entries(keys: list[str] | None) -> list[ConfigEntry]:
    """The loggers and their levels, as entries of DescribeConfigs. Only those in `keys`, unless that is None."""
    return [
        ConfigEntry(name, level, ConfigSource.BROKER_LOGGER, False, False, [], _UNKNOWN_TYPE, None)
        for name, level in levels().items()
        if keys is None or name in keys
    ]


def check_broker(name: str, call: Call) -> None:
    if name != str(call.node.node_id):
        raise Refused(Error.INVALID_REQUEST, f"this is broker {call.node.node_id}; ask broker {name!r} itself")


def alter_loggers(wanted: ResourceChange, call: Call, *, validate_only: bool) -> Refused | None:
    """Set all levels or none; returns the reason if none is set."""
    try:
        check_changes(wanted)
        check_broker(wanted.resource_name, call)
        known = levels()
        for change in wanted.changes:
            _check(change, known)
    except Refused as refusal:
        return refusal
    for change in wanted.changes if not validate_only else ():
        if change.operation == ConfigOperation.DELETE:
            unset_level(change.name)
        else:
            set_level(change.name, change.value or "")
        trace("setting.logger_changed", logger=change.name, level=levels()[change.name])
    return None


def _check(change: ConfigChange, known: dict[str, str]) -> None:
    if change.operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
        raise Refused(Error.INVALID_REQUEST, f"{change.name}: the level of a logger can be set (0) and deleted (1)")
    if change.name not in known:
        raise Refused(Error.INVALID_CONFIG, f"there is no logger {change.name!r}; this broker has {', '.join(known)}")
    if change.operation == ConfigOperation.DELETE:
        if change.name == ROOT:
            raise Refused(Error.INVALID_REQUEST, f"the level of {ROOT} cannot be removed: there is no logger above it")
    elif change.value not in LEVELS:
        raise Refused(Error.INVALID_CONFIG, f"{change.name}={change.value}: must be one of {', '.join(LEVELS)}")
