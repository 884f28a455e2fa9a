"""Groups of Java's own consumer, in both protocols, and exactly once with its transactions."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from nodes.java_members import JavaMembers
from nodes.java_tools import JavaTools, java_tools
from nodes.ottla_node import OttlaNode, running_node
from nodes.topics import KEEPING, QUICK_GROUPS, Server, Topics
from peers.broker import wait_until

PARTITIONS, TOTAL = 6, 3_000
SESSION_MS = 4_000
"""So soon a killed member is missed."""
CONFIGS = "kafka.admin.ConfigCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
CLASSIC = {"group_protocol": "classic", "heartbeat_interval_ms": "100", "session_timeout_ms": str(SESSION_MS)}
CONSUMER = {"group_protocol": "consumer"}
PROTOCOLS = {"classic": CLASSIC, "consumer": CONSUMER}


@pytest.fixture
def topic(server: Server, topics: Topics) -> str:
    return topics.create(server, partitions=PARTITIONS)


def members_of(tools: JavaTools, server: Server, group: str, **settings: str) -> JavaMembers:
    """Members of a group whose changes follow each other at once."""
    quick = {"heartbeat.interval": 100, "assignment.interval": 0, "session.timeout": SESSION_MS}
    given = ",".join(f"consumer.{name}.ms={value}" for name, value in quick.items())
    named = ["--entity-type", "groups", "--entity-name", group]
    tools.run(CONFIGS, "--bootstrap-server", server.bootstrap, "--alter", *named, "--add-config", given)
    return JavaMembers(tools, server.bootstrap, group, **settings)


def wait_until_taken(members: JavaMembers, numbers: range) -> None:
    wait_until(lambda: len(members.taken()) >= len(numbers), f"the members of {members.group} have read all")
    assert members.taken() == list(numbers)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_record_is_taken_once_as_members_come_and_go(
    server: Server, topic: str, tools: JavaTools, protocol: str
) -> None:
    members = members_of(tools, server, topic, **PROTOCOLS[protocol])
    members.write(topic, range(60))
    members.join("a", topic)
    members.settle(PARTITIONS, "a")
    members.join("b", topic)
    members.settle(PARTITIONS, "a", "b")
    members.write(topic, range(60, 120))
    members.join("c", topic)
    members.settle(PARTITIONS, "a", "b", "c")
    members.leave("a")
    members.write(topic, range(120, 180))
    members.settle(PARTITIONS, "b", "c")
    members.leave("c")
    members.settle(PARTITIONS, "b")
    wait_until_taken(members, range(180))
    members.leave("b")


def test_cooperative_members_give_up_only_what_others_get(server: Server, topic: str, tools: JavaTools) -> None:
    """Members that share by range give up everything at every change."""
    members = members_of(tools, server, topic, **CLASSIC, partition_assignment_strategy=COOPERATIVE)
    members.join("a", topic)
    had = members.settle(PARTITIONS, "a")["a"]
    members.join("b", topic)
    has = members.settle(PARTITIONS, "a", "b")["a"]
    assert (has.revoked, has.lost) == (3, 0)
    assert has.owned < had.owned
    members.join("c", topic)
    states = members.settle(PARTITIONS, "a", "b", "c")
    assert (states["a"].revoked, states["b"].revoked, states["c"].revoked) == (4, 1, 0)
    members.leave("a", "b", "c")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_restart_of_a_static_member_moves_nothing(server: Server, topic: str, tools: JavaTools, protocol: str) -> None:
    members = members_of(tools, server, topic, **PROTOCOLS[protocol])
    members.join("other", topic)
    members.join("static", topic, group_instance_id="one")
    before = members.settle(PARTITIONS, "other", "static")
    members.leave("static")
    members.join("static", topic, group_instance_id="one")
    after = members.settle(PARTITIONS, "other", "static")
    assert after["static"].owned == before["static"].owned
    assert after["other"] == before["other"], "it was not even asked to rejoin"
    members.leave("other", "static")


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    """A node to be killed."""
    with running_node(tmp_path_factory.mktemp("mortal"), KEEPING | QUICK_GROUPS) as node:
        yield node


@pytest.fixture
def doomed(kafka_jars: Path, java_classes: Path, tmp_path: Path) -> Iterator[JavaTools]:
    """A JVM to be killed."""
    with java_tools(kafka_jars, tmp_path, java_classes) as started:
        yield started


def test_groups_go_on_where_they_committed(
    mortal: OttlaNode, topics: Topics, tools: JavaTools, doomed: JavaTools
) -> None:
    """First the node is killed under its members, then the members; both times nothing is read twice or not at all."""
    topic = topics.create(mortal, partitions=PARTITIONS)
    groups = {protocol: f"{topic}-{protocol}" for protocol in PROTOCOLS}
    dying = [members_of(doomed, mortal, group, **PROTOCOLS[protocol]) for protocol, group in groups.items()]
    for members in dying:
        members.join("a", topic)
        members.join("b", topic)
        members.settle(PARTITIONS, "a", "b")
    dying[0].write(topic, range(60))
    for members in dying:
        wait_until_taken(members, range(60))
    mortal.kill()
    mortal.start()
    dying[0].write(topic, range(60, 120))
    for members in dying:
        wait_until_taken(members, range(120))
    doomed.kill()
    heirs = [members_of(tools, mortal, group, **PROTOCOLS[protocol]) for protocol, group in groups.items()]
    heirs[0].write(topic, range(120, 150))
    for members in heirs:
        members.join("c", topic)
    for members in heirs:
        members.settle(PARTITIONS, "c")
        wait_until_taken(members, range(120, 150))
        members.leave("c")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_copy_is_exact_through_kills(
    mortal: OttlaNode, topics: Topics, tools: JavaTools, doomed: JavaTools, protocol: str
) -> None:
    """Copiers come and go, are killed in the middle of transactions, and so is the node: what is in the copy is what is
    in the source, each record once (I12)."""
    source, target = topics.create(mortal, partitions=PARTITIONS), topics.create(mortal, partitions=PARTITIONS)
    small_steps = PROTOCOLS[protocol] | {"max_poll_records": "10"}
    dying = members_of(doomed, mortal, target, **small_steps)
    heirs = members_of(tools, mortal, target, **small_steps)
    heirs.write(source, range(TOTAL))
    dying.copy("a", source, target)
    dying.copy("b", source, target)
    dying.copy("c", source, target)
    wait_until(partial(_has, heirs, target, TOTAL // 10), "the copiers get on")
    mortal.kill()
    mortal.start()
    wait_until(partial(_has, heirs, target, TOTAL // 4), "the copiers get on after the node's death")
    doomed.kill()
    heirs.copy("a", source, target)
    heirs.copy("b", source, target)
    wait_until(partial(_has, heirs, target, TOTAL // 2), "other copiers get on after the death of the first")
    heirs.copy("c", source, target)
    heirs.leave("a")
    wait_until(partial(_has, heirs, target, TOTAL), "the copy is complete")
    heirs.leave("b", "c")
    assert heirs.read(target) == list(range(TOTAL))
    assert int(_transaction(tools, mortal, f"{target}-b")["ProducerEpoch"]) > 2, "version 2: an epoch per transaction"


def _has(members: JavaMembers, topic: str, count: int) -> bool:
    return len(members.read(topic)) >= count


def _transaction(tools: JavaTools, server: Server, transactional_id: str) -> dict[str, str]:
    described = ["describe", "--transactional-id", transactional_id]
    names, values = tools.run(TRANSACTIONS, "--bootstrap-server", server.bootstrap, *described).stdout.splitlines()
    return dict(zip(names.split(), values.split(), strict=False))
