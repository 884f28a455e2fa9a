"""`ottla group` against a cluster, with groups that librdkafka's consumers make."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as At
from nodes.ottla_node import wait_until
from peers.clusters import fresh, with_client
from peers.commands import Ottla

from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.core.names import TopicPartition

PATIENCE_S = 240
LONG_AGO_MS = 1_700_000_000_000


@contextmanager
def member(ottla: Ottla, group: str, topic: str, partitions: int, **settings: Any) -> Iterator[Consumer]:
    """A consumer that has all partitions of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": ottla.bootstrap,
            "group.id": group,
            "client.id": "cli-member",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **settings,
        }
    )
    consumer.subscribe([topic])
    try:

        def assigned() -> bool:
            consumer.poll(0.1)
            return len(consumer.assignment()) == partitions

        wait_until(assigned, f"{group} has all partitions of {topic}")
        yield consumer
    finally:
        consumer.close()


def topic_of(ottla: Ottla, counts: list[int]) -> str:
    """A topic with so many records in each partition, a second apart."""
    topic = ottla.topic("cli-group", "-p", len(counts))
    for partition, count in enumerate(counts):
        lines = [json.dumps({"value": "v", "timestamp": LONG_AGO_MS + 1_000 * number}) for number in range(count)]
        assert ottla.produce(topic, "\n".join(lines).encode(), "--json", "--partition", partition).code == 0
    return topic


def group_at(ottla: Ottla, offsets: dict[str, int], topic: str) -> str:
    """A group without members that has come to some offsets, by partition."""
    group = fresh("cli-at")
    for partition, offset in offsets.items():
        done = ottla("group", "reset-offsets", group, "-t", f"{topic}:{partition}", "--to-offset", offset, "--execute")
        assert done.code == 0, done.err
    return group


def described(ottla: Ottla, group: str) -> Any:
    said = ottla("group", "describe", group, "--json")
    assert said.code == 0, said.err
    (one,) = said.lines
    return one


def places(ottla: Ottla, group: str) -> dict[int, int]:
    return {one["partition"]: one["committed_offset"] for one in described(ottla, group)["partitions"]}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_assignment_and_lag_are_shown(ottla: Ottla, protocol: str) -> None:
    topic, group = topic_of(ottla, [5, 2]), fresh("cli-members")
    before_ms = int(time.time() * 1000)
    with member(ottla, group, topic, 2, **{"group.protocol": protocol}) as consumer:
        consumer.commit(offsets=[At(topic, 0, 2), At(topic, 1, 2)], asynchronous=False)
        wait_until(lambda: described(ottla, group)["state"] == "Stable", f"{group} is stable")
        one = described(ottla, group)
        (who,) = one["members"]
        assert (one["group"], one["type"], one["protocol_type"]) == (group, protocol, "consumer")
        assert one["assignor"] == ("range" if protocol == "classic" else "uniform")
        assert (who["client_id"], who["host"]) == ("cli-member", "127.0.0.1")
        assert who["assignment"] == [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 1}]
        first, second = one["partitions"]
        assert (first["committed_offset"], first["end_offset"], first["lag"]) == (2, 5, 3)
        assert first["lag_ms"] >= before_ms - (LONG_AGO_MS + 2_000)
        assert (second["lag"], second["lag_ms"]) == (0, None)
        assert first["member_id"] == who["member_id"]
        assert (one["lag"], one["lag_ms"]) == (3, first["lag_ms"])
        shown = ottla("group", "describe", group).out.decode()
        assert f"{protocol} group, Stable, 1 member, 3 records behind" in shown
        assert "cli-member" in shown
        (listed,) = ottla("group", "list", group, "--state", "stable", "--type", protocol, "--json").lines
        assert (listed["group"], listed["state"], listed["coordinator"]) == (group, "Stable", one["coordinator"])
        other = "consumer" if protocol == "classic" else "classic"
        assert ottla("group", "list", group, "--type", other).out == b""
        assert ottla("group", "list", group, "--state", "empty", "--json").lines == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_with_live_members_is_neither_moved_nor_deleted(ottla: Ottla, protocol: str) -> None:
    topic, group = topic_of(ottla, [3]), fresh("cli-live")
    with member(ottla, group, topic, 1, **{"group.protocol": protocol}) as consumer:
        consumer.commit(offsets=[At(topic, 0, 1)], asynchronous=False)
        move = ("group", "reset-offsets", group, "--all-topics", "--to-latest")
        refused = ottla(*move, "--execute")
        assert (refused.code, refused.out) == (1, b"")
        assert f"group {group} has 1 live member (cli-member at 127.0.0.1)" in refused.err
        planned = ottla(*move, "--json")
        assert (planned.code, planned.lines[0]["new_offset"]) == (0, 3)
        assert "it could not be done now" in planned.err
        deleted = ottla("group", "delete", group, "--yes")
        assert deleted.code == 1
        assert f"group {group}, broker {ottla.bootstrap}: " in deleted.err
        assert "NON_EMPTY_GROUP" in deleted.err
        forgotten = ottla("group", "delete", group, "--topic", topic, "--yes")
        assert "GROUP_SUBSCRIBED_TO_TOPIC" in forgotten.err
        assert places(ottla, group) == {0: 1}


def test_reset_shows_its_plan_and_changes_nothing_without_execute(ottla: Ottla) -> None:
    topic = topic_of(ottla, [5, 5])
    group = group_at(ottla, {"0": 2, "1": 4}, topic)
    planned = ottla("group", "reset-offsets", group, "--topic", topic, "--to-earliest")
    assert planned.err == "dry run: nothing was changed; --execute does it\n"
    header, *rows = [line.split() for line in planned.out.decode().splitlines()]
    assert header == ["Topic", "Partition", "Current", "New", "Difference"]
    assert rows == [[topic, "0", "2", "0", "-2"], [topic, "1", "4", "0", "-4"]]
    assert places(ottla, group) == {0: 2, 1: 4}


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (["--to-earliest"], {0: 0, 1: 0}),
        (["--to-latest"], {0: 5, 1: 9}),
        (["--to-current"], {0: 2, 1: 4}),
        (["--to-offset", 7], {0: 5, 1: 7}),
        (["--shift-by", -3], {0: 0, 1: 1}),
        (["--shift-by", 2], {0: 4, 1: 6}),
        (["--to-time", f"@{LONG_AGO_MS + 6_500}"], {0: 5, 1: 7}),
        (["--to-time", "2023-11-14T22:13:23"], {0: 3, 1: 3}),
        (["--to-time", "1h"], {0: 5, 1: 9}),
    ],
)
def test_group_goes_where_it_is_told(ottla: Ottla, where: list[object], expected: dict[int, int]) -> None:
    topic = topic_of(ottla, [5, 9])
    group = group_at(ottla, {"0": 2, "1": 4}, topic)
    said = ottla("group", "reset-offsets", group, "--all-topics", *where, "--execute", "--json")
    assert said.code == 0, said.err
    assert {one["partition"]: one["new_offset"] for one in said.lines} == expected
    assert all(one["applied"] for one in said.lines)
    assert places(ottla, group) == expected


def test_offset_that_is_not_there_becomes_the_nearest_and_the_plan_says_so(ottla: Ottla) -> None:
    topic = topic_of(ottla, [5])
    (move,) = ottla("group", "reset-offsets", fresh("cli-new"), "-t", topic, "--to-offset", 99, "--json").lines
    assert (move["current_offset"], move["new_offset"], move["note"]) == (None, 5, "99 is after the end of the log")


def test_plan_that_was_printed_can_be_carried_out(ottla: Ottla, tmp_path: Path) -> None:
    topic = topic_of(ottla, [5, 5])
    group, saved = group_at(ottla, {"0": 2, "1": 4}, topic), tmp_path / "offsets"
    saved.write_bytes(ottla("group", "reset-offsets", group, "--all-topics", "--to-current", "--json").out)
    assert ottla("group", "reset-offsets", group, "--all-topics", "--to-latest", "--execute").code == 0
    assert places(ottla, group) == {0: 5, 1: 5}
    assert ottla("group", "reset-offsets", group, "--from-file", saved, "--execute").code == 0
    assert places(ottla, group) == {0: 2, 1: 4}
    saved.write_text(f'"{topic}",1,3\n')  # As Kafka's own tool exports it.
    assert ottla("group", "reset-offsets", group, "--from-file", saved, "--execute").code == 0
    assert places(ottla, group) == {0: 2, 1: 3}


def test_groups_and_offsets_of_topics_are_deleted(ottla: Ottla) -> None:
    first, second = topic_of(ottla, [3]), topic_of(ottla, [3])
    group = group_at(ottla, {"0": 1}, first)
    assert ottla("group", "reset-offsets", group, "-t", second, "--to-latest", "--execute").code == 0
    forgotten = ottla("group", "delete", group, "--topic", first, "--yes")
    assert forgotten.out == f"{group}: offset 1 of {first}-0 deleted\n".encode()
    assert [one["topic"] for one in described(ottla, group)["partitions"]] == [second]
    both = ottla("group", "delete", group, "absent", "--yes")
    assert (both.code, both.out) == (1, f"{group} deleted\n".encode())
    assert f"group absent, broker {ottla.bootstrap}: " in both.err
    missing = ottla("group", "describe", group)
    assert missing.code == 1
    assert (
        f"group {group}, broker {ottla.bootstrap}: There is no group of this name (GROUP_ID_NOT_FOUND)" in missing.err
    )
    assert "`ottla group list`" in missing.err


def test_offset_whose_records_are_gone_is_pointed_out(ottla: Ottla) -> None:
    """The group will jump when it comes back, and miss what was between."""
    topic = topic_of(ottla, [5])
    group = group_at(ottla, {"0": 1}, topic)

    async def work(client: Client) -> None:
        await Admin(client).delete_records({TopicPartition(topic, 0): 4})

    with_client(ottla.bootstrap, work)
    (one,) = described(ottla, group)["partitions"]
    assert (one["start_offset"], one["lag"]) == (4, 4)
    assert one["lag_ms"] >= int(time.time() * 1000) - (LONG_AGO_MS + 4_000) - 60_000
    assert one["trouble"] == "next records are gone: the log starts at 4"


def test_no_work_waits_where_only_markers_are_left(ottla: Ottla) -> None:
    """The end counts offsets, and the marker of a transaction has one that nobody consumes."""
    topic = ottla.topic("cli-marker", "-p", 1)
    producer = Producer({"bootstrap.servers": ottla.bootstrap, "transactional.id": fresh("cli-t"), "log_level": 0})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"v")
    producer.commit_transaction(PATIENCE_S)
    group = group_at(ottla, {"0": 1}, topic)
    wait_until(lambda: described(ottla, group)["lag"] == 1, "the marker is written")
    (one,) = described(ottla, group)["partitions"]
    assert (one["end_offset"], one["lag_ms"]) == (2, None)


def test_offsets_of_a_topic_that_is_gone_do_not_hide_the_others(ottla: Ottla) -> None:
    kept, gone = topic_of(ottla, [3]), topic_of(ottla, [3])
    group = group_at(ottla, {"0": 1}, kept)
    assert ottla("group", "reset-offsets", group, "-t", gone, "--to-latest", "--execute").code == 0
    assert ottla("topic", "delete", gone, "--yes").code == 0
    wait_until(lambda: gone.encode() not in ottla("topic", "list").out, f"{gone} is gone")
    assert (kept, 1) in [(one["topic"], one["committed_offset"]) for one in described(ottla, group)["partitions"]]
    moved = ottla("group", "reset-offsets", group, "--all-topics", "--to-latest", "--execute", "--json")
    assert [(one["topic"], one["new_offset"]) for one in moved.lines] == [(kept, 3)]


def test_consuming_as_a_member_goes_on_where_the_group_is(ottla: Ottla) -> None:
    topic, group = topic_of(ottla, [3, 2]), fresh("cli-member")
    first = ottla("consume", topic, "--group", group, "--max", 2, "-q")
    assert (first.code, first.out, first.err) == (0, b"v\nv\n", "")
    assert sum(offset or 0 for offset in places(ottla, group).values()) == 2
    rest = ottla("consume", topic, "--group", group, "--timeout", 60)  # Until the group has given it partitions.
    assert (rest.code, rest.out) == (0, b"v\n" * 3)
    assert rest.err.startswith(f"3 records of {topic}, 3 bytes")
    assert rest.err.endswith(f", as a member of {group}\n")
    assert places(ottla, group) == {0: 3, 1: 2}
    again = ottla("consume", topic, "--group", group)
    assert (again.code, again.out) == (0, b"")


def test_a_member_shares_with_other_clients_of_its_group(ottla: Ottla) -> None:
    """Librdkafka's consumer gives up a partition for it, and gets it back."""
    topic, group = topic_of(ottla, [0, 0]), fresh("cli-shared")
    with member(ottla, group, topic, 2, **{"group.protocol": "consumer"}) as other:
        command = [sys.executable, "-m", "ottla.cli", "consume", topic, "-b", ottla.bootstrap, "-g", group, "-F", "-o"]
        following = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:

            def shared() -> bool:
                other.poll(0.1)
                return len(other.assignment()) == 1

            wait_until(shared, "the command has one partition and the other consumer the other")
            (mine,) = {0, 1} - {one.partition for one in other.assignment()}
            assert ottla.produce(topic, b"hello", "--partition", mine).code == 0
            assert following.stdout is not None
            assert following.stdout.readline() == b"%d:0\thello\n" % mine
        finally:
            following.send_signal(signal.SIGINT)
            following.communicate(timeout=PATIENCE_S)
        assert following.returncode == 130
        assert places(ottla, group)[mine] == 1

        def alone() -> bool:
            other.poll(0.1)
            return len(other.assignment()) == 2

        wait_until(alone, "the command left the group")


def test_a_member_cannot_choose_its_partitions(ottla: Ottla) -> None:
    said = ottla("consume", "t", "--group", "g", "--partition", 0)
    assert said.code == 2
    assert "the group decides which partitions a member reads" in said.err
