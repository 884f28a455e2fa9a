"""The layers of a running cluster: what counts, what can change, what is never shown."""

import pytest

from ottla.config import (
    BROKER_SETTINGS,
    LOG_DIRS,
    RETENTION_MS,
    SEGMENT_BYTES,
    Config,
    ConfigSource,
    ConfigSynonym,
    InvalidConfig,
    Secret,
    groups,
    metrics,
    network,
    quorum,
    security,
    share,
)

HOUR = 3_600_000
FILE = {"log.dirs": "/a", "log.retention.ms": "1", "max.connections": "10", "ssl.keystore.password": "xyzzy"}


def test_order_of_the_layers() -> None:
    config = Config.of(broker=FILE, on_cluster={"max.connections": "20"}, on_broker={"max.connections": "30"})
    assert config[network.MAX_CONNECTIONS] == 30
    assert config.origins(network.MAX_CONNECTIONS) == [
        ConfigSynonym(ConfigSource.BROKER, "max.connections", "30"),
        ConfigSynonym(ConfigSource.CLUSTER, "max.connections", "20"),
        ConfigSynonym(ConfigSource.BROKER_FILE, "max.connections", "10"),
        ConfigSynonym(ConfigSource.DEFAULT, "max.connections", "2147483647"),
    ]
    assert config.source(network.MAX_CONNECTIONS) is ConfigSource.BROKER


def test_topic_sees_what_was_set_on_the_cluster() -> None:
    broker = Config.of(broker=FILE, on_cluster={"log.retention.ms": "2"})
    assert broker.for_topic({})[RETENTION_MS] == 2
    topic = broker.for_topic({"retention.ms": "3"})
    assert (topic[RETENTION_MS], topic[LOG_DIRS]) == (3, ("/a",))
    assert [origin.source for origin in topic.origins(RETENTION_MS)] == [
        *(ConfigSource.TOPIC, ConfigSource.CLUSTER, ConfigSource.BROKER_FILE, ConfigSource.DEFAULT)
    ]


def test_new_dynamic_values_keep_the_file() -> None:
    config = Config.of(broker=FILE, on_cluster={"max.connections": "20", "log.segment.bytes": "2000000"})
    changed = config.with_dynamic(on_cluster={"max.connections": "21"}, on_broker={})
    assert changed[network.MAX_CONNECTIONS] == 21
    assert changed[SEGMENT_BYTES] == SEGMENT_BYTES.default
    assert changed[LOG_DIRS] == ("/a",)


def test_topics_share_what_they_do_not_override() -> None:
    """A thousand topics must not hold a thousand tables of all settings."""
    broker = Config.of(broker=FILE)
    assert broker.for_topic({})._values is broker._values
    assert len(broker.for_topic({"retention.ms": "3"})._values) < len(BROKER_SETTINGS) / 4


@pytest.mark.parametrize(
    ("on_cluster", "on_broker", "problem"),
    [
        ({"node.id": "2"}, {}, "node.id: cannot change while the broker runs"),
        ({}, {"log.retention.hours": "2"}, "log.retention.hours: cannot change while the broker runs"),
        ({"listeners": "PLAINTEXT://:1"}, {}, "listeners: every broker has its own value of this"),
        ({}, {"ssl.keystore.location": "/k"}, "set listener.name.NAME.ssl.keystore.location"),
        ({"listener.name.x.ssl.keystore.location": "/k"}, {}, "every broker has its own value of this"),
        ({"max.connections": "-1"}, {}, "max.connections=-1: must be at least 0"),
        (
            {},
            {"listener.name.x.max.connections": "many"},
            "listener.name.x.max.connections=many: must be a whole number",
        ),
    ],
)
def test_what_a_running_cluster_refuses(on_cluster: dict[str, str], on_broker: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        Config.of(on_cluster=on_cluster, on_broker=on_broker)
    assert problem in str(refused.value)


def test_settings_of_one_listener_are_known() -> None:
    names = {
        "listener.name.x.ssl.keystore.location": "/k",
        "listener.name.x.scram-sha-256.sasl.jaas.config": "module required;",
        "listener.name.x.max.connections": "5",
    }
    assert Config.of(broker=names).unknown == ()
    assert Config.of(on_broker=names).unknown == ()
    assert Config.of(on_cluster={"listener.name.x.max.connections": "5"})[network.MAX_CONNECTIONS] == 2**31 - 1
    assert Config.of(broker={"listener.name.x.nonsense": "1"}).unknown == ("listener.name.x.nonsense",)


def test_secret_is_never_shown() -> None:
    config = Config.of(broker=FILE)
    secret = config[security.SSL_KEYSTORE_PASSWORD]
    assert isinstance(secret, Secret)
    assert (secret.reveal(), repr(secret), str(secret)) == ("xyzzy", "[hidden]", "[hidden]")
    assert config.text(security.SSL_KEYSTORE_PASSWORD) is None
    assert config.origins(security.SSL_KEYSTORE_PASSWORD) == [
        ConfigSynonym(ConfigSource.BROKER_FILE, "ssl.keystore.password", None)
    ]
    assert {secret, Secret("xyzzy")} == {secret}


def test_values_as_described() -> None:
    config = Config.of()
    assert config.text(network.LISTENERS) == "PLAINTEXT://:9092"
    assert config.text(network.ADVERTISED_LISTENERS) is None
    assert not config.is_set(network.LISTENERS)


def test_group_falls_back_to_the_broker() -> None:
    broker = Config.of(broker={"group.consumer.session.timeout.ms": "50000"})
    group = broker.for_group({"consumer.heartbeat.interval.ms": "6000"})
    assert group[groups.CONSUMER_SESSION_TIMEOUT_MS] == 50_000
    assert group[groups.CONSUMER_HEARTBEAT_INTERVAL_MS] == 6_000
    assert group.origins(groups.CONSUMER_HEARTBEAT_INTERVAL_MS) == [
        ConfigSynonym(ConfigSource.GROUP, "consumer.heartbeat.interval.ms", "6000"),
        ConfigSynonym(ConfigSource.DEFAULT, "group.consumer.heartbeat.interval.ms", "5000"),
    ]
    assert group.overrides == {"consumer.heartbeat.interval.ms": "6000"}


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("consumer.session.timeout.ms", "44999", "must not be less than group.consumer.min.session.timeout.ms=45000"),
        ("consumer.session.timeout.ms", "60001", "must not exceed group.consumer.max.session.timeout.ms=60000"),
        ("share.auto.offset.reset", "by_duration:1h", "by_duration: with a duration"),
        ("share.auto.offset.reset", "by_duration:P", "by_duration: with a duration"),
        ("group.consumer.session.timeout.ms", "1", "did you mean consumer.session.timeout.ms?"),
    ],
)
def test_what_a_group_cannot_set(name: str, text: str, problem: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        Config.of().for_group({name: text})
    assert problem in str(refused.value)


@pytest.mark.parametrize("text", ["latest", "earliest", "by_duration:PT5M", "by_duration:P1DT2H3M4.5S"])
def test_where_a_share_group_may_begin(text: str) -> None:
    assert Config.of().for_group({"share.auto.offset.reset": text})[share.SHARE_AUTO_OFFSET_RESET] == text


def test_subscription_to_clients_metrics() -> None:
    config = Config.of().for_client_metrics({"interval.ms": "1000"})
    assert (config[metrics.INTERVAL_MS], config[metrics.METRICS]) == (1_000, ())
    assert config.origins(metrics.INTERVAL_MS) == [ConfigSynonym(ConfigSource.CLIENT_METRICS, "interval.ms", "1000")]
    assert config.origins(metrics.METRICS) == []
    with pytest.raises(InvalidConfig, match=r"there are metrics, interval\.ms, match"):
        Config.of().for_client_metrics({"interval": "1"})


@pytest.mark.parametrize("file", [{"node.id": "7"}, {"broker.id": "7"}, {"node.id": "7", "broker.id": "7"}])
def test_two_names_of_one_number(file: dict[str, str]) -> None:
    config = Config.of(broker=file)
    assert (config[quorum.NODE_ID], config[quorum.BROKER_ID]) == (7, 7)
    assert config.source(quorum.NODE_ID) is ConfigSource.BROKER_FILE


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ({"node.id": "7", "broker.id": "8"}, "broker.id=8 must be the same as node.id=7"),
        ({"replica.fetch.wait.max.ms": "30001"}, "must not exceed replica.socket.timeout.ms=30000"),
        (
            {"queued.max.request.bytes": "5"},
            "queued.max.request.bytes=5 must not be less than socket.request.max.bytes",
        ),
        ({"group.consumer.max.heartbeat.interval.ms": "4000"}, "group.consumer.heartbeat.interval.ms=5000 must not"),
        (
            {"group.share.session.timeout.ms": "5000", "group.share.min.session.timeout.ms": "5000"},
            "group.share.heartbeat.interval.ms=5000 must be less than group.share.session.timeout.ms=5000",
        ),
        ({"group.consumer.migration.policy": "sideways"}, "BIDIRECTIONAL in letters of either case"),
        ({"default.replication.factor": "0"}, "at least 1 or -1"),
        ({"process.roles": "broker,zookeeper"}, "one of broker, controller"),
    ],
)
def test_what_a_file_cannot_say(file: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        Config.of(broker=file)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("name", "warning"),
    [
        ("zookeeper.connect", "there is no ZooKeeper"),
        ("inter.broker.protocol.version", "metadata.version is a feature now"),
        ("retention.ms", "for a broker it is log.retention.ms"),
        ("my.own.thing", "my.own.thing: no such broker setting"),
    ],
)
def test_warning_about_an_unknown_name(name: str, warning: str) -> None:
    (said,) = Config.of(broker={name: "1"}).warnings()
    assert warning in said
