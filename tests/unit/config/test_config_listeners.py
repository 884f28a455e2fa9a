"""Where a node is reached, from Kafka's settings."""

import pytest

from ottla.config import Config, InvalidConfig, parse_properties
from ottla.config.listeners import Endpoint, Protocol, Voter, listeners, voters

# What the file that comes with Apache Kafka sets.
KAFKA_FILE = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def of(**settings: str) -> Config:
    return Config.of(broker={name.replace("_", "."): text for name, text in settings.items()})


def refused(config: Config) -> str:
    with pytest.raises(InvalidConfig) as error:
        listeners(config)
    return str(error.value)


def test_kafkas_own_file_works_unchanged() -> None:
    config = Config.of(broker=parse_properties(KAFKA_FILE))
    assert config.unknown == ()
    found = listeners(config)
    assert found.clients == (Endpoint("PLAINTEXT", "", 9092, Protocol.PLAINTEXT),)
    assert found.controllers == (Endpoint("CONTROLLER", "", 9093, Protocol.PLAINTEXT),)
    assert found.advertised == (Endpoint("PLAINTEXT", "localhost", 9092, Protocol.PLAINTEXT),)
    assert found.between_brokers == "PLAINTEXT"
    assert voters(config) == ()


def test_node_without_a_file_listens_on_kafkas_port() -> None:
    found = listeners(Config.of())
    assert found.clients == found.advertised == (Endpoint("PLAINTEXT", "", 9092, Protocol.PLAINTEXT),)
    assert found.controllers == ()


def test_names_and_protocols() -> None:
    config = of(
        listeners="internal://[::1]:9092,EXTERNAL://db.example:9093",
        listener_security_protocol_map="INTERNAL:plaintext, external:SASL_SSL",
        inter_broker_listener_name="Internal",
    )
    found = listeners(config)
    assert found.clients == (
        Endpoint("INTERNAL", "::1", 9092, Protocol.PLAINTEXT),
        Endpoint("EXTERNAL", "db.example", 9093, Protocol.SASL_SSL),
    )
    assert found.between_brokers == "INTERNAL"
    assert [str(one) for one in found.clients] == ["INTERNAL://[::1]:9092", "EXTERNAL://db.example:9093"]


def test_controllers_listener_is_plain_where_nothing_else_is_said() -> None:
    plain = of(listeners="PLAINTEXT://:1,QUORUM://:2", controller_listener_names="QUORUM")
    assert listeners(plain).controllers == (Endpoint("QUORUM", "", 2, Protocol.PLAINTEXT),)
    secure = of(
        listeners="SSL://:1,QUORUM://:2", controller_listener_names="QUORUM", security_inter_broker_protocol="SSL"
    )
    assert "does not say what QUORUM speaks" in refused(secure)


@pytest.mark.parametrize(
    ("listening", "problem"),
    [
        ("PLAINTEXT:9092", "listeners=PLAINTEXT:9092: must be NAME://HOST:PORT"),
        ("PLAINTEXT://:65536", "must be NAME://HOST:PORT"),
        ("PLAINTEXT://:-1", "must be NAME://HOST:PORT"),
        ("CLIENTS://:9092", "does not say what CLIENTS speaks; add CLIENTS:PLAINTEXT"),
        ("PLAINTEXT://:1,plaintext://:2", "there is another listener PLAINTEXT"),
        ("PLAINTEXT://:1,SSL://:1", "only one IPv4 and one IPv6 address may share port 1"),
        ("PLAINTEXT://127.0.0.1:1,SSL://127.0.0.2:1", "may share port 1"),
        ("PLAINTEXT://0.0.0.0:9092", "no client can connect to 0.0.0.0; set advertised.listeners"),
        ("SSL://:9092", "inter.broker.listener.name=PLAINTEXT: must be one of the listeners that are advertised: SSL"),
    ],
)
def test_what_cannot_be_is_refused(listening: str, problem: str) -> None:
    assert problem in refused(of(listeners=listening))


@pytest.mark.parametrize(
    "listening", ["PLAINTEXT://127.0.0.1:1,SSL://[::1]:1", "PLAINTEXT://:0,SSL://:0", "PLAINTEXT://0.0.0.0:1"]
)
def test_what_can_be(listening: str) -> None:
    listeners(of(listeners=listening, advertised_listeners="PLAINTEXT://here:1"))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"advertised_listeners": "SSL://a:1"}, "SSL is not among listeners"),
        ({"advertised_listeners": "PLAINTEXT://0.0.0.0:1"}, "advertised.listeners=PLAINTEXT://0.0.0.0:1"),
        ({"controller_listener_names": "PLAINTEXT"}, "none is left for clients"),
        ({"controller_listener_names": "X"}, "X is not among listeners, where a controller needs it"),
        ({"process_roles": "broker"}, "controller.listener.names must name"),
        (
            {"process_roles": "broker", "listeners": "PLAINTEXT://:1,X://:2", "controller_listener_names": "X"},
            "must not have these among its listeners",
        ),
        ({"process_roles": "controller"}, "PLAINTEXT://:9092 is not among controller.listener.names"),
        ({"listener_security_protocol_map": "PLAINTEXT:TLS"}, "PLAINTEXT:TLS: must be NAME:PROTOCOL"),
        (
            {"inter_broker_listener_name": "PLAINTEXT", "security_inter_broker_protocol": "PLAINTEXT"},
            "set inter.broker.listener.name or security.inter.broker.protocol, not both",
        ),
    ],
)
def test_settings_that_contradict_each_other(settings: dict[str, str], problem: str) -> None:
    assert problem in refused(of(**settings))


def test_voters() -> None:
    config = of(node_id="2", controller_quorum_voters="1@a:9093, 2@[::1]:9094")
    assert voters(config) == (Voter(1, "a", 9093), Voter(2, "::1", 9094))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"controller_quorum_voters": "a:1"}, "controller.quorum.voters=a:1: must be ID@HOST:PORT"),
        ({"controller_quorum_voters": "1@a"}, "must be ID@HOST:PORT"),
        ({"controller_quorum_voters": "1@a:70000"}, "must be ID@HOST:PORT"),
        ({"controller_quorum_voters": "1@a:1,1@b:1"}, "voter 1 stands twice"),
        ({"controller_quorum_voters": "2@a:1"}, "node.id=1 is not among controller.quorum.voters"),
        (
            {"controller_quorum_voters": "1@a:1", "process_roles": "broker"},
            "node.id=1 is among controller.quorum.voters: exactly the nodes with controller in process.roles must be",
        ),
    ],
)
def test_voters_that_cannot_be(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        voters(of(**settings))
    assert problem in str(error.value)
