"""Every declared setting agrees with Kafka's own table, read from the jars."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from peers.jvm import run_tool

from ottla.config import BROKER_SETTINGS, TOPIC_SETTINGS, Setting

HERE = Path(__file__).parent

# Classes named in a file and loaded into the broker: Ottla never loads code by name.
NOT_OURS = {"create.topic.policy.class.name", "alter.config.policy.class.name"}
# The bound that Kafka checks elsewhere, after it has put the units together.
BOUND_ELSEWHERE = {"log.roll.ms", "log.roll.jitter.ms", "log.retention.ms", "log.flush.interval.ms"}

Table = dict[str, list[list[str]]]


@pytest.fixture(scope="session")
def kafka(kafka_jars: Path) -> Table:
    """Rows of the table by their kind."""
    rows: Table = defaultdict(list)
    for line in run_tool(kafka_jars, str(HERE / "settings" / "KafkaSettings.java")).stdout.splitlines():
        kind, *cells = line.split("\t")
        rows[kind].append(cells)
    return rows


def test_same_topic_settings(kafka: Table) -> None:
    ours = {name for name in TOPIC_SETTINGS if not name.startswith("ottla.")}
    assert ours == {name for name, *_ in kafka["topic"]}


def test_same_log_settings_of_the_broker(kafka: Table) -> None:
    assert {name for (name,) in kafka["log"]} - NOT_OURS - set(BROKER_SETTINGS) == set()
    assert {name for name in BROKER_SETTINGS if not name.startswith("ottla.")} <= {name for name, *_ in kafka["broker"]}


def test_same_types_defaults_and_bounds(kafka: Table) -> None:
    differences = []
    for kind, known in (("topic", TOPIC_SETTINGS), ("broker", BROKER_SETTINGS)):
        for name, kafka_type, default, allowed in kafka[kind]:
            if name not in known:
                continue
            setting = known[name]
            if kind == "broker" and name in BOUND_ELSEWHERE:
                allowed = _allowed(setting)
            ours = (setting.type.kafka, _default(setting, kind), _allowed(setting))
            if ours != (kafka_type, default, allowed):
                differences.append((kind, name, ours, (kafka_type, default, allowed)))
    assert differences == []


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


def test_same_settings_can_change_live(kafka: Table) -> None:
    live = {name for (name,) in kafka["live"]}
    for name, setting in BROKER_SETTINGS.items():
        if not name.startswith("ottla."):
            assert setting.is_live == (name in live), name


def _default(setting: Setting[Any], kind: str) -> str:
    """As Kafka declares it: where a coarser unit stands in, the finer one has no default of its own on the broker."""
    if setting.default is None or (kind == "broker" and setting.falls_back_to):
        return "(none)"
    return setting.type.show(setting.default)


def _allowed(setting: Setting[Any]) -> str:
    """In the words of Kafka's validators."""
    if "throttled.replicas" in setting.name:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    if setting.name in ("log.dir", "log.dirs", "cordoned.log.dirs"):
        return ""
    if setting.one_of:
        return f"[{', '.join(setting.one_of)}]"
    if setting.at_least is None:
        return "null"
    upper = f",{setting.at_most}" if setting.at_most is not None else ""
    also = "".join(f" or {value}" for value in setting.also)
    return f"[{setting.at_least},...{upper}]{also}"
