"""Changing settings, and telling them."""

import pytest
from core_metadata_samples import Cluster, topic

from ottla.config import Config
from ottla.core.metadata.config_entries import broker_entries, cluster_entries, topic_entries
from ottla.core.metadata.configs import ConfigChange, ConfigOperation, ResourceChange, alter, config_of_broker
from ottla.core.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from ottla.wire.errors import Error
from ottla.wire.records.metadata import ClearElrRecord, ConfigRecord

SET, DELETE, APPEND, SUBTRACT = ConfigOperation
THROTTLED = "leader.replication.throttled.replicas"


def _altered(cluster: Cluster, *resources: ResourceChange, validate_only: bool = False) -> list[int]:
    decision = alter(cluster.image, resources, config=cluster.config, validate_only=validate_only)
    cluster.apply(decision)
    return [one.refusal.error if one.refusal else Error.NONE for one in decision.reply]


def _topic(*changes: tuple[str, int, str | None], replaces: bool = False, name: str = "t") -> ResourceChange:
    return ResourceChange(TOPIC, name, [ConfigChange(*change) for change in changes], replaces)


def _broker(*changes: tuple[str, int, str | None], name: str = "", replaces: bool = False) -> ResourceChange:
    return ResourceChange(BROKER, name, [ConfigChange(*change) for change in changes], replaces)


def _metrics(*changes: tuple[str, int, str | None]) -> ResourceChange:
    return ResourceChange(CLIENT_METRICS, "m", [ConfigChange(*change) for change in changes])


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.create(topic("t", configs={"retention.ms": "5", "cleanup.policy": "compact"}))
    return cluster


def test_single_settings_are_set_and_removed(cluster: Cluster) -> None:
    assert _altered(cluster, _topic(("retention.ms", DELETE, None), ("segment.ms", SET, "7"))) == [Error.NONE]
    assert cluster.image.config(TOPIC, "t") == {"cleanup.policy": "compact", "segment.ms": "7"}


def test_replacing_removes_what_is_not_named(cluster: Cluster) -> None:
    assert _altered(cluster, _topic(("segment.ms", SET, "7"), replaces=True)) == [Error.NONE]
    assert cluster.image.config(TOPIC, "t") == {"segment.ms": "7"}


def test_lists_grow_and_shrink(cluster: Cluster) -> None:
    """Appending begins with the default where nothing is set."""
    policy = "cleanup.policy"
    assert _altered(cluster, _topic((policy, APPEND, "delete"))) == [Error.NONE]
    assert cluster.image.config(TOPIC, "t")[policy] == "compact,delete"
    _altered(cluster, _topic((policy, APPEND, "delete")))
    assert cluster.image.config(TOPIC, "t")[policy] == "compact,delete"
    _altered(cluster, _topic((policy, SUBTRACT, "compact")))
    assert cluster.image.config(TOPIC, "t")[policy] == "delete"
    cluster.create(topic("u"))
    _altered(cluster, _topic((policy, APPEND, "compact"), name="u"))
    assert cluster.image.config(TOPIC, "u")[policy] == "delete,compact"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (_topic(("retention.ms", SET, "soon")), Error.INVALID_CONFIG),
        (_topic(("no.such", SET, "1")), Error.INVALID_CONFIG),
        (_topic(("retention.ms", APPEND, "1")), Error.INVALID_CONFIG),
        (_topic(("retention.ms", 9, "1")), Error.INVALID_REQUEST),
        (_topic(("retention.ms", SET, None)), Error.INVALID_REQUEST),
        (_topic(("retention.ms", SET, "1"), ("retention.ms", SET, "2")), Error.INVALID_REQUEST),
        (_topic(("retention.ms", SET, "1"), name="nope"), Error.UNKNOWN_TOPIC_OR_PARTITION),
        (_topic(("retention.ms", SET, "soon"), name="nope"), Error.INVALID_CONFIG),
        (_topic(("retention.ms", SET, "1"), name=""), Error.INVALID_REQUEST),
        (_topic(("retention.ms", SET, "1"), name="a/b"), Error.INVALID_TOPIC_EXCEPTION),
        (_topic(("retention.ms", APPEND, "1"), name="a/b"), Error.INVALID_CONFIG),
        (_topic(("remote.storage.enable", SET, "true")), Error.INVALID_CONFIG),
        (_topic((THROTTLED, SET, "0:1,one")), Error.INVALID_CONFIG),
        (_topic((THROTTLED, SET, "*,0:1")), Error.INVALID_CONFIG),
        (_topic(("cleanup.policy", SET, "x" * 40_000)), Error.INVALID_CONFIG),
        (_topic(("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "8")), Error.INVALID_CONFIG),
        (_broker(("log.retention.ms", SET, "soon")), Error.INVALID_REQUEST),
        (_broker(("log.dirs", SET, "/elsewhere")), Error.INVALID_REQUEST),
        (_broker(("log.retention.ms", SET, "5"), name="one"), Error.INVALID_REQUEST),
        (_broker(("min.insync.replicas", SET, "2"), name="1"), Error.INVALID_CONFIG),
        (_broker(("min.insync.replicas", DELETE, None)), Error.INVALID_CONFIG),
        (_broker(("log.retention.ms", SET, "5"), replaces=True), Error.INVALID_CONFIG),
        (ResourceChange(GROUP, "", []), Error.INVALID_REQUEST),
        (ResourceChange(GROUP, "g", [ConfigChange("no.such", SET, "1")]), Error.INVALID_CONFIG),
        (ResourceChange(BROKER_LOGGER, "1", []), Error.INVALID_REQUEST),
        (_metrics(("unknown", SET, "1")), Error.INVALID_REQUEST),
        (_metrics(("interval.ms", SET, "99")), Error.INVALID_REQUEST),
        (_metrics(("interval.ms", SET, "3600001")), Error.INVALID_REQUEST),
        (_metrics(("interval.ms", SET, "often")), Error.INVALID_CONFIG),
        (_metrics(("match", SET, "client_id")), Error.INVALID_CONFIG),
        (_metrics(("match", SET, "client_id=")), Error.INVALID_CONFIG),
        (_metrics(("match", SET, "client_id=a=b")), Error.INVALID_CONFIG),
        (_metrics(("match", SET, "client_id=(")), Error.INVALID_CONFIG),
        (_metrics(("match", SET, "name=a")), Error.INVALID_CONFIG),
        (ResourceChange(77, "x", []), Error.INVALID_REQUEST),
    ],
)
def test_bad_change_is_refused_whole_and_its_neighbour_made(
    cluster: Cluster, change: ResourceChange, error: Error
) -> None:
    cluster.create(topic("other"))
    before = {key: dict(value) for key, value in cluster.image.configs.items()}
    assert _altered(cluster, change, _topic(("segment.ms", SET, "7"), name="other")) == [error, Error.NONE]
    assert cluster.image.configs == before | {(TOPIC, "other"): {"segment.ms": "7"}}


@pytest.mark.parametrize(
    "change",
    [
        _topic((THROTTLED, SET, "*")),
        _topic((THROTTLED, SET, "0:1, 1:2,")),
        _topic(("remote.storage.enable", SET, "false")),
        _topic(("cleanup.policy", SET, "delete,delete")),
        _metrics(
            ("interval.ms", SET, "100"), ("match", SET, " client_id = a.*, client_source_port=9"), ("metrics", SET, "*")
        ),
    ],
)
def test_odd_values_that_kafka_takes_are_taken(cluster: Cluster, change: ResourceChange) -> None:
    assert _altered(cluster, change) == [Error.NONE]


def test_a_new_topic_is_not_given_what_an_old_one_is_refused(cluster: Cluster) -> None:
    """The settings of CreateTopics are judged as those of IncrementalAlterConfigs."""
    for name, value in (("remote.storage.enable", "true"), (THROTTLED, "one")):
        (told,) = cluster.create(topic("new", configs={name: value})).topics
        assert told.error_code == Error.INVALID_CONFIG
        assert "new" not in cluster.image.topics


def test_what_another_release_accepted_does_not_keep_a_topic_from_being_opened() -> None:
    """Only changes are refused: a node whose metadata hold such a value has to start."""
    config = Config.of({"remote.storage.enable": "true", THROTTLED: "one"})
    assert config.overrides[THROTTLED] == "one"


def test_resource_named_twice_is_not_changed(cluster: Cluster) -> None:
    twice = _topic(("segment.ms", SET, "7"))
    assert _altered(cluster, twice, twice) == [Error.INVALID_REQUEST] * 2
    assert "segment.ms" not in cluster.image.config(TOPIC, "t")


def test_validation_alone_changes_nothing(cluster: Cluster) -> None:
    before = len(cluster.records)
    assert _altered(cluster, _topic(("segment.ms", SET, "7")), validate_only=True) == [Error.NONE]
    assert len(cluster.records) == before


def test_unchanged_value_is_written_for_a_broker_alone(cluster: Cluster) -> None:
    """Brokers read their files of secrets again when they hear of a change (KAFKA-14136)."""
    before = len(cluster.records)
    _altered(cluster, _topic(("retention.ms", SET, "5")))
    assert len(cluster.records) == before
    _altered(cluster, _broker(("log.retention.ms", SET, "5")))
    _altered(cluster, _broker(("log.retention.ms", SET, "5")))
    assert [type(record) for record in cluster.records[before:]] == [ConfigRecord, ConfigRecord]


def test_eligible_leaders_are_forgotten_when_min_insync_changes(cluster: Cluster) -> None:
    """They were eligible by the old number."""
    _altered(cluster, _topic(("min.insync.replicas", SET, "2")), _broker(("min.insync.replicas", SET, "2")))
    cleared = [record.topic_name for record in cluster.records if isinstance(record, ClearElrRecord)]
    assert cleared == ["t", ""]


# Telling.


def test_topic_setting_tells_every_layer_that_names_it(cluster: Cluster) -> None:
    _altered(cluster, _broker(("log.retention.ms", SET, "50")), _broker(("log.retention.ms", SET, "500"), name="1"))
    config, problems = config_of_broker(cluster.config, cluster.image, 1)
    assert problems == []
    (entry,) = topic_entries(config.for_topic(cluster.image.config(TOPIC, "t")), ["retention.ms"])
    assert (entry.value, entry.source, entry.read_only, entry.sensitive) == ("5", 1, False, False)
    assert [(one.source, one.text) for one in entry.synonyms[:3]] == [(1, "5"), (2, "500"), (3, "50")]
    (default,) = topic_entries(config, ["segment.bytes"])
    assert (default.value, default.source, default.type) == ("1073741824", 5, 3)


def test_secrets_and_unknown_names_are_not_told() -> None:
    cluster = Cluster(ssl_keystore_password="geheim", my_own_thing="also secret")
    entries = {entry.name: entry for entry in broker_entries(cluster.config, None)}
    assert entries["ssl.keystore.password"][1:5] == (None, 4, False, True)
    assert entries["my.own.thing"][1:5] == (None, 4, True, True)
    assert "geheim" not in str(entries)
    assert entries["node.id"].read_only
    assert entries["log.retention.ms"].doc


def test_cluster_tells_only_what_was_set_on_it(cluster: Cluster) -> None:
    _altered(cluster, _broker(("log.retention.ms", SET, "50")))
    texts = cluster.image.config(BROKER, "")
    told = [(entry.name, entry.value, entry.source) for entry in cluster_entries(texts, None)]
    assert told == [("log.retention.ms", "50", 3), ("min.insync.replicas", "1", 3)]
    assert [entry.name for entry in cluster_entries(texts, ["log.retention.ms"])] == ["log.retention.ms"]


def test_setting_of_another_release_does_not_keep_the_node_from_starting() -> None:
    cluster = Cluster()
    for name, value in (("log.retention.ms", "5"), ("log.dirs", "/x"), ("log.segment.bytes", "no")):
        cluster.image.replay(ConfigRecord(resource_type=BROKER, resource_name="", name=name, value=value))
    config, problems = config_of_broker(cluster.config, cluster.image, 1)
    assert sorted(problem.split("=")[0].split(":")[0] for problem in problems) == ["log.dirs", "log.segment.bytes"]
    (entry,) = broker_entries(config, ["log.retention.ms"])
    assert entry.value == "5"
