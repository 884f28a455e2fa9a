"""Decisions that change the settings of topics, brokers, groups and client metrics.

Rule 1: the changes of one resource are atomic: one bad value refuses all of them. It does not affect other resources.
Rule 2: the effective settings after a change are checked: the kept settings of the resource together with the new ones.
Rule 3: the settings of a broker are written even if nothing changes, because that makes the brokers read their files of
        secrets again (KAFKA-14136).
Rule 4: while eligible leader replicas are enabled, `min.insync.replicas` belongs to the cluster. It cannot be set per
        broker, nor removed from the cluster, and its change clears the eligible leader replicas.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.config import (
    BROKER_SETTINGS,
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    Config,
    InvalidConfig,
    Setting,
)
from ottla.core.metadata.features import is_elr_enabled
from ottla.core.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC, Image
from ottla.core.metadata.names import check_name
from ottla.core.metadata.records import MetadataRecord
from ottla.core.patterns import compile_pattern
from ottla.core.runtime.decision import Decision
from ottla.wire.errors import Error, Refused
from ottla.wire.records.metadata import ClearElrRecord, ConfigRecord

MIN_ISR: Final = "min.insync.replicas"
_VALUE_LENGTH_MAX: Final = 32_767
_INTERVALS_MS: Final = range(100, 3_600_001)
_MATCHED: Final = (
    *("client_instance_id", "client_id", "client_software_name", "client_software_version"),
    *("client_source_address", "client_source_port"),
)
"""Properties of a client that a subscription to client metrics may match."""
_REPLICA: Final = re.compile(r"(?:[0-9]+:[0-9]+)?")
CHANGES_MAX: Final = 2_000
"""Maximum number of changes of one resource in a request: they are decided together. Some 300 settings exist."""
_KNOWN: Final = {
    TOPIC: TOPIC_SETTINGS,
    BROKER: BROKER_SETTINGS,
    GROUP: GROUP_SETTINGS,
    CLIENT_METRICS: CLIENT_METRICS_SETTINGS,
}


class ConfigOperation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    name: str
    operation: int
    value: str | None


class ResourceChange(NamedTuple):
    """The changes of one resource in a request. `replaces`: settings that are not named are removed (AlterConfigs)."""

    resource_type: int
    resource_name: str
    changes: Sequence[ConfigChange]
    replaces: bool = False


class ResourceOutcome(NamedTuple):
    resource_type: int
    resource_name: str
    refusal: Refused | None


def alter(
    image: Image,
    resources: Sequence[ResourceChange],
    *,
    config: Config,
    validate_only: bool,
    named: Mapping[tuple[int, str], int] | None = None,
) -> Decision[list[ResourceOutcome]]:
    """Alter settings. Each resource has its own outcome. If `resources` are only a part of the request, `named` has the
    number of times that each resource occurs in the whole request."""
    if named is None:
        named = Counter((one.resource_type, one.resource_name) for one in resources)
    records: list[MetadataRecord] = []
    outcomes = []
    for one in resources:
        refusal: Refused | None = None
        try:
            if named[one.resource_type, one.resource_name] > 1:
                raise Refused(Error.INVALID_REQUEST, "the resource is named more than once in the request")
            records += _altered(image, one, config)
        except Refused as refused:
            refusal = refused.with_traceback(None)  # Saves memory, because there may be very many refusals.
        outcomes.append(ResourceOutcome(one.resource_type, one.resource_name, refusal))
    return Decision(outcomes, [] if validate_only else records)


def _altered(image: Image, one: ResourceChange, config: Config) -> list[MetadataRecord]:
    check_changes(one)
    if one.resource_type not in _KNOWN:
        raise Refused(Error.INVALID_REQUEST, f"settings of resources of type {one.resource_type} cannot be changed")
    current = image.config(one.resource_type, one.resource_name)
    after = {} if one.replaces else dict(current)
    changed: dict[str, str | None] = {}
    for change in one.changes:
        value = _value_after(one, change, current.get(change.name))
        changed[change.name] = value
        if value is None:
            after.pop(change.name, None)
        else:
            after[change.name] = value
    if one.replaces:
        changed |= {name: None for name in current if name not in changed}
    _check_name(one)
    _check_min_isr(image, one, changed)
    _check_values(image, one, after, config)
    if one.resource_type == TOPIC and one.resource_name not in image.topics:
        raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {one.resource_name!r}")
    records: list[MetadataRecord] = [
        ConfigRecord(resource_type=one.resource_type, resource_name=one.resource_name, name=name, value=value)
        for name, value in changed.items()
        if value != current.get(name) or one.resource_type == BROKER
    ]
    if is_elr_enabled(image) and any(record.name == MIN_ISR for record in records):
        records.append(ClearElrRecord(topic_name=one.resource_name if one.resource_type == TOPIC else ""))
    return records


def _check_name(one: ResourceChange) -> None:
    name = one.resource_name
    if one.resource_type != BROKER and not name:
        raise Refused(Error.INVALID_REQUEST, "settings of a topic, of a group or of client metrics need its name")
    if one.resource_type == BROKER and name and not name.isdecimal():
        raise Refused(Error.INVALID_REQUEST, f"a broker is named by its id, not {name!r}")
    if one.resource_type == TOPIC:
        check_name(name)


def check_changes(one: ResourceChange) -> None:
    """Raises Refused if the changes of one resource are inconsistent in themselves, independent of the image."""
    if len(one.changes) > CHANGES_MAX:
        raise Refused(
            Error.POLICY_VIOLATION, f"more than {CHANGES_MAX} settings of one resource: change some at a time"
        )
    named = Counter(change.name for change in one.changes)
    twice = [name for name, count in named.items() if count > 1]
    if twice:
        raise Refused(Error.INVALID_REQUEST, f"settings named more than once: {', '.join(twice)}")
    without = [
        change.name for change in one.changes if change.value is None and change.operation != ConfigOperation.DELETE
    ]
    if without:
        raise Refused(Error.INVALID_REQUEST, f"settings without a value: {', '.join(without)}")


def _value_after(one: ResourceChange, change: ConfigChange, current: str | None) -> str | None:
    if change.operation == ConfigOperation.SET:
        return change.value
    if change.operation == ConfigOperation.DELETE:
        return None
    if change.operation not in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
        raise Refused(Error.INVALID_REQUEST, f"{change.name}: there is no operation {change.operation}")
    setting = _KNOWN[one.resource_type].get(change.name)
    if setting is None or setting.type.kafka != "LIST":
        verb = ConfigOperation(change.operation).name.lower()
        raise Refused(Error.INVALID_CONFIG, f"{change.name} is no list, so one cannot {verb} to it")
    items = [item for item in (_default(setting) if current is None else current).split(",") if item]
    named = (change.value or "").split(",")
    if change.operation == ConfigOperation.APPEND:
        known = set(items)
        items += [item for item in dict.fromkeys(named) if item not in known]
    else:
        gone = set(named)
        items = [item for item in items if item not in gone]
    return ",".join(items)


def _default(setting: Setting[object]) -> str:
    return "" if setting.default is None else setting.type.show(setting.default)


def _check_min_isr(image: Image, one: ResourceChange, changed: dict[str, str | None]) -> None:
    if one.resource_type != BROKER or MIN_ISR not in changed or not is_elr_enabled(image):
        return
    if one.resource_name:
        raise Refused(
            Error.INVALID_CONFIG, f"{MIN_ISR} belongs to the cluster: set it for the default broker, not for one"
        )
    if changed[MIN_ISR] is None:
        raise Refused(Error.INVALID_CONFIG, f"the cluster's {MIN_ISR} can be changed, not removed")


def _check_values(image: Image, one: ResourceChange, after: dict[str, str], config: Config) -> None:
    """Raises `InvalidConfig`, or Refused with INVALID_REQUEST for a broker, as Kafka does (KAFKA-13609)."""
    for name, value in after.items():
        if len(value) > _VALUE_LENGTH_MAX:
            raise Refused(
                Error.INVALID_CONFIG,
                f"{name}: a value of {len(value)} characters, at most {_VALUE_LENGTH_MAX} are allowed",
            )
    if one.resource_type == TOPIC:
        topic_config(config, after)
    elif one.resource_type == GROUP:
        config.for_group(after)
    elif one.resource_type == CLIENT_METRICS:
        _check_client_metrics(config, after)
    else:
        try:
            # Only the changed layer is checked: the others were accepted before.
            on_cluster = image.config(BROKER, "") if one.resource_name else after
            config.with_dynamic(on_cluster=on_cluster, on_broker=after if one.resource_name else {})
        except InvalidConfig as invalid:
            raise Refused(Error.INVALID_REQUEST, invalid.text) from invalid


def topic_config(config: Config, overrides: Mapping[str, str]) -> Config:
    """The effective settings of a topic with these overrides. Raises `InvalidConfig` if they may not be set.

    A topic that Kafka or an earlier release created may have overrides that are refused here. It is still served with
    them."""
    after = config.for_topic(overrides)
    if after[TOPIC_SETTINGS["remote.storage.enable"]]:
        raise InvalidConfig(["remote.storage.enable=true: there is no tiered storage here; leave it out"])
    for name in ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"):
        replicas = after[TOPIC_SETTINGS[name]]
        if "".join(replicas) != "*" and not all(_REPLICA.fullmatch(one) for one in replicas):
            raise InvalidConfig(
                [f"{name}={','.join(replicas)}: must be * or a list of PARTITION:BROKER, separated by commas"]
            )
    return after


def _check_client_metrics(config: Config, after: Mapping[str, str]) -> None:
    unknown = [name for name in after if name not in CLIENT_METRICS_SETTINGS]
    if unknown:
        known = ", ".join(CLIENT_METRICS_SETTINGS)
        raise Refused(Error.INVALID_REQUEST, f"{unknown[0]} is no setting of client metrics; there are {known}")
    checked = config.for_client_metrics(after)
    interval_ms = checked[CLIENT_METRICS_SETTINGS["interval.ms"]] if "interval.ms" in after else _INTERVALS_MS[0]
    if interval_ms not in _INTERVALS_MS:
        raise Refused(
            Error.INVALID_REQUEST,
            f"interval.ms={interval_ms}: must be {_INTERVALS_MS[0]} to {_INTERVALS_MS[-1]}",
        )
    for one in checked[CLIENT_METRICS_SETTINGS["match"]] if "match" in after else ():
        name, _, pattern = one.partition("=")
        if name.strip() not in _MATCHED or not pattern or "=" in pattern:
            raise InvalidConfig([f"match={one}: must be NAME=PATTERN, where NAME is one of {', '.join(_MATCHED)}"])
        try:
            compile_pattern(pattern.strip(), "match")
        except Refused as refusal:
            raise InvalidConfig([refusal.text]) from None


def config_of_broker(file: Config, image: Image, node_id: int) -> tuple[Config, list[str]]:
    """The effective settings of a broker from its file and the image, and the problems of the settings left out.

    Another release may have written values that are invalid here. They must not prevent the node from starting.
    """
    layers = {"on_cluster": image.config(BROKER, ""), "on_broker": image.config(BROKER, str(node_id))}
    try:
        return file.with_dynamic(**layers), []
    except InvalidConfig:
        pass
    taken: dict[str, dict[str, str]] = {"on_cluster": {}, "on_broker": {}}
    problems: list[str] = []
    for layer, texts in layers.items():
        for name in sorted(texts):
            tried = {**taken, layer: {**taken[layer], name: texts[name]}}
            try:
                file.with_dynamic(**tried)
                taken = tried
            except InvalidConfig as invalid:
                problems += invalid.problems
    return file.with_dynamic(**taken), problems
