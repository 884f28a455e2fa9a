"""What counts, where it comes from, and how wrong values are refused."""

from typing import Any

import pytest

from ottla.config import (
    CLEANUP_POLICY,
    FLUSH_MS,
    INTERNAL_SEGMENT_BYTES,
    LOG_CLEANER_IO_MAX_BYTES_PER_SECOND,
    LOG_DIRS,
    LOG_RETENTION_MINUTES,
    MIN_CLEANABLE_DIRTY_RATIO,
    PREALLOCATE,
    RETENTION_MS,
    SEGMENT_BYTES,
    SEGMENT_JITTER_MS,
    SEGMENT_MS,
    SETTINGS,
    TOPIC_RETENTION_BYTES,
    Config,
    ConfigSource,
    ConfigSynonym,
    InvalidConfig,
    Setting,
)
from ottla.wire.errors import Error

HOUR = 3_600_000


def test_defaults_stand_where_nothing_is_set() -> None:
    config = Config.of()
    assert config[SEGMENT_BYTES] == 1 << 30
    assert config[RETENTION_MS] == 168 * HOUR
    assert config[CLEANUP_POLICY] == ("delete",)
    assert config[TOPIC_RETENTION_BYTES] == -1
    assert config[INTERNAL_SEGMENT_BYTES] is None
    assert {config.source(setting) for setting in SETTINGS} == {ConfigSource.DEFAULT}


def test_topic_beats_broker_beats_default() -> None:
    broker = Config.of(broker={"log.segment.bytes": "2097152"})
    assert broker[SEGMENT_BYTES] == 2_097_152
    topic = broker.for_topic({"segment.bytes": " 1048576 "})
    assert topic[SEGMENT_BYTES] == 1_048_576
    assert topic.overrides == {"segment.bytes": " 1048576 "}
    assert [config.source(SEGMENT_BYTES) for config in (broker, topic)] == [
        ConfigSource.BROKER_FILE,
        ConfigSource.TOPIC,
    ]


def test_finer_unit_wins_on_the_broker() -> None:
    """Kafka: log.retention.ms, then .minutes, then .hours."""
    given = {"log.retention.hours": "1"}
    assert Config.of(broker=given)[RETENTION_MS] == HOUR
    given["log.retention.minutes"] = "2"
    assert Config.of(broker=given)[RETENTION_MS] == 120_000
    assert Config.of(broker=given)[LOG_RETENTION_MINUTES] == 2
    given["log.retention.ms"] = "3"
    assert Config.of(broker=given)[RETENTION_MS] == 3
    assert Config.of({"retention.ms": "4"}, broker=given)[RETENTION_MS] == 4


@pytest.mark.parametrize(
    ("setting", "given", "value"),
    [
        (SEGMENT_MS, {"log.roll.hours": "2"}, 2 * HOUR),
        (SEGMENT_MS, {"log.roll.hours": "2", "log.roll.ms": "5"}, 5),
        (SEGMENT_JITTER_MS, {"log.roll.jitter.hours": "3"}, 3 * HOUR),
        (FLUSH_MS, {"log.flush.scheduler.interval.ms": "9"}, 9),
        (LOG_DIRS, {"log.dir": "/a"}, ("/a",)),
        (LOG_DIRS, {"log.dir": "/a", "log.dirs": "/b , /c"}, ("/b", "/c")),
        (RETENTION_MS, {"log.retention.hours": "-1"}, -1),
    ],
)
def test_fallbacks(setting: Setting[Any], given: dict[str, str], value: object) -> None:
    assert Config.of(broker=given)[setting] == value


def test_default_of_a_setting_agrees_with_its_last_fallback() -> None:
    """The default is written twice, in two units; they must say the same."""
    for setting in SETTINGS:
        for fallback, factor in setting.falls_back_to[-1:]:
            assert setting.default == (fallback.default if factor == 1 else fallback.default * factor), setting


def test_origins_in_the_order_they_count() -> None:
    """DescribeConfigs sends these as synonyms."""
    config = Config.of({"retention.ms": "4"}, broker={"log.retention.hours": "1", "log.retention.ms": "3"})
    assert config.origins(RETENTION_MS) == [
        ConfigSynonym(ConfigSource.TOPIC, "retention.ms", "4"),
        ConfigSynonym(ConfigSource.BROKER_FILE, "log.retention.ms", "3"),
        ConfigSynonym(ConfigSource.BROKER_FILE, "log.retention.hours", "1"),
        ConfigSynonym(ConfigSource.DEFAULT, "log.retention.hours", "168"),
    ]


def test_internal_segment_size_overrules() -> None:
    """Tests need segments far below the bound that protects operators."""
    config = Config.of({"segment.bytes": "1048576", "internal.segment.bytes": "100"})
    assert config[SEGMENT_BYTES] == 100
    assert config.origins(SEGMENT_BYTES)[0].name == "internal.segment.bytes"


def test_what_stands_twice_in_a_list_counts_once() -> None:
    """As in Kafka, which shows it once, too."""
    config = Config.of({"cleanup.policy": "delete, delete"})
    assert config[CLEANUP_POLICY] == ("delete",)
    assert config.origins(CLEANUP_POLICY)[0] == ConfigSynonym(ConfigSource.TOPIC, "cleanup.policy", "delete")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("segment.bytes", "1048575", "at least 1048576"),
        ("segment.bytes", "2147483648", "32 bits"),
        ("segment.bytes", "1_048_576", "a whole number"),
        ("segment.bytes", "1e6", "a whole number"),
        ("segment.bytes", "", "a whole number"),
        ("segment.bytes", "١٢٣٤٥٦٧", "a whole number"),
        ("retention.ms", "9223372036854775808", "64 bits"),
        ("retention.ms", "-2", "at least -1"),
        ("min.cleanable.dirty.ratio", "1.1", "0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "a number"),
        ("min.cleanable.dirty.ratio", "half", "a number"),
        ("preallocate", "yes", "true or false"),
        ("cleanup.policy", "delete,drop", "one of compact, delete"),
        ("cleanup.policy", "delete,", "without empty items"),
        ("compression.type", "zst", "one of uncompressed, zstd"),
        ("compression.gzip.level", "0", "1 to 9 or -1"),
        ("message.timestamp.type", "", "one of CreateTime, LogAppendTime"),
    ],
)
def test_refusal_names_the_setting_the_value_and_what_is_allowed(name: str, text: str, expected: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        Config.of({name: text})
    assert refused.value.error is Error.INVALID_CONFIG
    assert refused.value.problems[0].startswith(f"{name}={text}: must be")
    assert expected in str(refused.value)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(InvalidConfig) as refused:
        Config.of({"segment.bytes": "x", "retention.ms": "y", "flush.ms": "1"})
    assert len(refused.value.problems) == 2


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("retentoin.ms", "did you mean retention.ms?"),
        ("log.segment.bytes", "for a topic it is segment.bytes"),
        ("log.dirs", "only a broker has this setting"),
        ("xyzzy", "no such topic setting"),
    ],
)
def test_unknown_topic_setting_is_refused_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(InvalidConfig, match=hint):
        Config.of({name: "1"})


def test_unknown_broker_setting_is_kept_for_a_warning() -> None:
    """Kafka's own server.properties must work."""
    config = Config.of(broker={"num.netwrok.threads": "3", "log.dirs": "/a"})
    assert config.unknown == ("num.netwrok.threads",)
    assert config.warnings() == ["num.netwrok.threads: no such broker setting; did you mean num.network.threads?"]


def test_topic_only_setting_means_nothing_in_the_brokers_file() -> None:
    assert Config.of(broker={"remote.storage.enable": "true"}).unknown == ("remote.storage.enable",)


def test_settings_that_contradict_each_other() -> None:
    with pytest.raises(InvalidConfig, match=r"min.compaction.lag.ms=5 must not exceed max.compaction.lag.ms=3"):
        Config.of({"min.compaction.lag.ms": "5"}, broker={"log.cleaner.max.compaction.lag.ms": "3"})


def test_values_as_kafka_writes_them() -> None:
    assert LOG_CLEANER_IO_MAX_BYTES_PER_SECOND.type.show(LOG_CLEANER_IO_MAX_BYTES_PER_SECOND.default) == (
        "1.7976931348623157E308"
    )
    assert MIN_CLEANABLE_DIRTY_RATIO.type.show(0.5) == "0.5"
    assert PREALLOCATE.type.show(False) == "false"
    assert CLEANUP_POLICY.type.show(("compact", "delete")) == "compact,delete"


def test_every_default_is_a_value_the_setting_accepts() -> None:
    for setting in SETTINGS:
        if setting.default is not None:
            assert setting.parse(setting.type.show(setting.default)) == setting.default, setting


def test_names_are_unique() -> None:
    broker = [setting.name for setting in SETTINGS]
    topic = [setting.topic for setting in SETTINGS if setting.topic]
    assert (len(set(broker)), len(set(topic))) == (len(broker), len(topic))
