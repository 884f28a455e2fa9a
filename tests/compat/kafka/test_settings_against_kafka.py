"""Every setting agrees with Kafka's own tables, read from the jars: no name is missing, and none is too many."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from peers.jvm import run_tool

from ottla.config import (
    BROKER_SETTINGS,
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    ConfigSource,
    Setting,
    Update,
)

HERE = Path(__file__).parent
KNOWN = {
    "topic": TOPIC_SETTINGS,
    "broker": BROKER_SETTINGS,
    "group": GROUP_SETTINGS,
    "client-metrics": CLIENT_METRICS_SETTINGS,
}

# Ottla's own defaults, each with its reason.
OTHER_DEFAULTS = {
    "default.replication.factor": "1",  # A topic must not be lost with one disk: -1 is min(3, brokers).
    "node.id": "(none)",  # A node starts without a file.
    "process.roles": "(none)",  # The same.
}
# Bounds that Kafka checks elsewhere: after it has put units together, when it makes a topic or looks for a codec.
BOUND_ELSEWHERE = {
    *("log.roll.ms", "log.roll.jitter.ms", "log.retention.ms", "log.flush.interval.ms"),
    *("default.replication.factor", "offsets.topic.compression.codec"),
}
# Validators that describe a notation; ours is checked by parsing.
NOTATIONS = {
    "[partitionId]:[brokerId],[partitionId]:[brokerId],...": "null",
    "[latest, earliest, by_duration:PnDTnHnMn.nS]": "null",
    "non-empty list": "null",
    "non-empty string": "null",
    "non-null string": "null",
    "": "null",
}

Table = dict[str, list[list[str]]]


@pytest.fixture(scope="session")
def kafka(kafka_jars: Path) -> Table:
    """Rows of the tables by their kind."""
    rows: Table = defaultdict(list)
    for line in run_tool(kafka_jars, str(HERE / "settings" / "KafkaSettings.java")).stdout.splitlines():
        kind, *cells = line.split("\t")
        rows[kind].append(cells)
    return rows


@pytest.mark.parametrize("kind", KNOWN)
def test_same_names(kafka: Table, kind: str) -> None:
    ours = {name for name in KNOWN[kind] if not name.startswith("ottla.")}
    assert ours == {name for name, *_ in kafka[kind]}


@pytest.mark.parametrize("kind", KNOWN)
def test_same_types_defaults_and_bounds(kafka: Table, kind: str) -> None:
    differences = []
    for name, kafka_type, default, allowed, _, internal in kafka[kind]:
        setting = KNOWN[kind][name]
        if name in OTHER_DEFAULTS:
            assert default == OTHER_DEFAULTS[name], f"{name}: Kafka has another default now"
            default = _default(setting, kind)
        if kind == "broker" and name in BOUND_ELSEWHERE:
            allowed = _allowed(setting)
        theirs = (kafka_type, default, NOTATIONS.get(allowed, allowed), bool(internal))
        ours = (setting.type.kafka, _default(setting, kind), _allowed(setting), setting.internal)
        if ours != theirs:
            differences.append((name, ours, theirs))
    assert differences == []


def test_what_kafka_refuses_when_empty_is_refused(kafka: Table) -> None:
    for kind, known in KNOWN.items():
        for name, _, _, _, emptiness, _ in kafka[kind]:
            if emptiness == "not empty":
                with pytest.raises(ValueError):
                    known[name].parse("")
            elif emptiness:
                known[name].parse("")


def test_same_synonyms_in_the_same_order_with_the_same_factors(kafka: Table) -> None:
    theirs = defaultdict(list)
    for topic, broker, times in kafka["synonym"]:
        theirs[topic].append((broker, int(times)))
    ours = {
        name: [(setting.name, 1), *((fallback.name, factor) for fallback, factor in setting.falls_back_to)]
        for name, setting in TOPIC_SETTINGS.items()
        if setting.on_broker and not name.startswith("ottla.")
    }
    assert ours == theirs


def test_same_synonyms_of_group_settings(kafka: Table) -> None:
    ours = {
        name: "".join(fallback.name for fallback, _ in setting.falls_back_to)
        for name, setting in GROUP_SETTINGS.items()
    }
    assert ours == dict(kafka["group-synonym"])


def test_same_ways_to_change_a_running_broker(kafka: Table) -> None:
    modes = dict(kafka["mode"])
    ours = {name: setting for name, setting in BROKER_SETTINGS.items() if not name.startswith("ottla.")}
    assert {name: setting.update.value for name, setting in ours.items()} == {
        name: modes.get(name, Update.READ_ONLY.value) for name in ours
    }
    assert {name for name, setting in ours.items() if setting.per_listener} == {
        name for (name,) in kafka["per-listener"]
    }


def test_same_numbers_of_sources(kafka: Table) -> None:
    assert {number for _, number in kafka["source"]} - {"0"} == {str(source.value) for source in ConfigSource}
    theirs = {name: int(number) for name, number in kafka["source"]}
    assert theirs["DYNAMIC_BROKER_CONFIG"] == ConfigSource.BROKER
    assert theirs["DYNAMIC_DEFAULT_BROKER_CONFIG"] == ConfigSource.CLUSTER
    assert theirs["STATIC_BROKER_CONFIG"] == ConfigSource.BROKER_FILE
    assert theirs["GROUP_CONFIG"] == ConfigSource.GROUP


def _default(setting: Setting[Any], kind: str) -> str:
    """As Kafka declares it: where a coarser unit stands in, the finer one has no default of its own on the broker."""
    if setting.default is None or (kind == "broker" and setting.falls_back_to):
        return "(none)"
    return setting.type.show(setting.default)


def _allowed(setting: Setting[Any]) -> str:
    """In the words of Kafka's validators."""
    if setting.one_of:
        return f"{'(case insensitive) ' if setting.any_case else ''}[{', '.join(setting.one_of)}]"
    if setting.at_least is None:
        return "null"
    upper = f",{setting.at_most}" if setting.at_most is not None else ""
    also = "".join(f" or {value}" for value in setting.also)
    return f"[{setting.at_least},...{upper}]{also}"
