"""ConsumerGroupCommand and TransactionsCommand: the same commands with both servers print the same."""

import re
from functools import partial

import pytest
from nodes.java_members import JavaMembers
from nodes.java_tools import JavaTools
from nodes.ottla_node import OttlaNode
from nodes.topics import Server, Topics
from peers.broker import wait_until
from peers.client import Client
from peers.jvm import ToolFailedError

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
PARTITIONS = 3

NO_TWO_SERVERS_SHARE = {
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}": "<uuid>",
    r"(?<!\S)[0-9A-Za-z_-]{22}(?!\S)": "<member>",
    r"127\.0\.0\.1:\d+": "<server>",
    r"(?m)^\s+at .*\n": "",
    r"(?<=Exception: ).*": "...",
    r"[ \t]+": " ",
}
TITLES = ("GROUP ", "TransactionalId")
"""What the first line of a list begins with."""
ITS_OWN = {"ProducerId", "CurrentTransactionStartTimeMs", "TransactionDurationMs", "LastTimestamp"}
"""Columns in tables of transactions."""


class Terminal:
    """Runs commands against one server; `said` is what each printed, but for what no two servers share."""

    def __init__(self, tools: JavaTools, server: Server, name: str) -> None:
        self._tools, self._server, self._name = tools, server, name
        self.said: list[str] = []

    def groups(self, *arguments: str) -> str:
        printed = self._run(GROUPS, *arguments)
        self._remember(arguments, printed)
        return printed

    def transactions(self, *arguments: str) -> str:
        """Of the table only what both can know, with the names of its columns."""
        printed = self._run(TRANSACTIONS, *arguments)
        title, *rows = printed.splitlines() or [""]
        columns = title.split()
        if ITS_OWN & set(columns):
            self._remember(arguments, "\n".join(_known(columns, row) for row in rows))
        else:
            self._remember(arguments, printed)
        return printed

    def _run(self, main_class: str, *arguments: str) -> str:
        """What the command printed; of lists only the lines that speak of this test."""
        try:
            output = self._tools.run(main_class, "--bootstrap-server", self._server.bootstrap, *arguments)
            printed = output.stdout + output.stderr
        except ToolFailedError as failed:
            printed = str(failed)
        if {"--list", "list"} & set(arguments):
            printed = "\n".join(line for line in printed.splitlines() if self._name in line or line.startswith(TITLES))
        return printed

    def _remember(self, arguments: tuple[str, ...], printed: str) -> None:
        """Kafka prints the rows of a table in any order."""
        for pattern, stand_in in NO_TWO_SERVERS_SHARE.items():
            printed = re.sub(pattern, stand_in, printed)
        self.said += [" ".join(arguments), *sorted(line.strip() for line in printed.splitlines())]


def _known(columns: list[str], row: str) -> str:
    """What both servers can know of a row."""
    named = zip(columns, row.split(), strict=False)
    return " ".join(f"{name}={value}" for name, value in named if name not in ITS_OWN)


def with_members(terminal: Terminal, group: str, topic: str) -> None:
    named = ["--group", group]
    for filters in (["--state"], ["--state", "stable"], ["--state", "Empty"], ["--type"], ["--type", "classic"], []):
        terminal.groups("--list", *filters)
    for view in ([], ["--offsets", "--verbose"], ["--members"], ["--members", "--verbose"], ["--state"]):
        terminal.groups("--describe", *named, *view)
    terminal.groups("--delete", *named)
    terminal.groups("--delete-offsets", *named, "--topic", topic)
    terminal.groups("--reset-offsets", *named, "--topic", topic, "--to-earliest", "--execute")


def without_members(terminal: Terminal, group: str, topic: str) -> None:
    named = ["--group", group]
    for view in ([], ["--members"], ["--state"]):
        terminal.groups("--describe", *named, *view)
    reset = ["--reset-offsets", *named, "--topic"]
    for target in (["--to-earliest"], ["--to-latest"], ["--to-current"], ["--shift-by", "-3"], ["--to-offset", "4"]):
        terminal.groups(*reset, topic, *target, "--dry-run")
    terminal.groups(*reset, f"{topic}:0,2", "--to-datetime", "2100-01-01T00:00:00.000", "--dry-run")
    terminal.groups(*reset, topic, "--by-duration", "PT1H", "--export", "--dry-run")
    terminal.groups(*reset, f"{topic}:1", "--to-offset", "7", "--execute")
    terminal.groups(*reset, f"{topic}:2", "--to-offset", "1000", "--execute")
    terminal.groups("--describe", *named)
    terminal.groups("--delete-offsets", *named, "--topic", f"{topic}:0")
    terminal.groups("--delete-offsets", *named, "--topic", "absent")
    terminal.groups("--describe", *named)
    terminal.groups("--list", "--state", "Empty")
    terminal.groups("--delete", *named)
    terminal.groups("--delete", *named)
    terminal.groups("--list")
    for view in ([], ["--members"], ["--state"]):
        terminal.groups("--describe", *named, *view)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consumer_group_command(
    ottla: OttlaNode, kafka: Server, topics: Topics, tools: JavaTools, protocol: str
) -> None:
    topic = topics.name()
    group = f"group-of-{topic}"
    said = []
    for server in (kafka, ottla):
        Client(server.bootstrap).create_topics({topic: {}}, {topic: PARTITIONS})
        members = JavaMembers(tools, server.bootstrap, group, group_protocol=protocol)
        members.write(topic, range(30))
        members.join("a", topic)
        members.settle(PARTITIONS, "a")
        terminal = Terminal(tools, server, topic)
        wait_until(partial(_is_done, terminal, group), "all is committed, and the group is stable")
        terminal.said.clear()
        with_members(terminal, group, topic)
        members.leave("a")
        without_members(terminal, group, topic)
        said.append(terminal.said)
    theirs, ours = said
    assert ours == theirs


def _is_done(terminal: Terminal, group: str) -> bool:
    named = ["--describe", "--group", group]
    rows = [line.split() for line in terminal.groups(*named).splitlines()]
    lags = [row[5] for row in rows if row and row[0] == group]
    return lags == ["0"] * PARTITIONS and " Stable " in terminal.groups(*named, "--state")


def of_transactions(terminal: Terminal, members: JavaMembers, topic: str) -> None:
    place = ["--topic", topic, "--partition", "0"]
    terminal.transactions("describe", "--transactional-id", topic)
    terminal.transactions("describe-producers", *place)
    members.leave_open(topic, topic)
    terminal.transactions("list")
    terminal.transactions("list", "--transactional-id-pattern", f"{topic}.?")
    terminal.transactions("list", "--transactional-id-pattern", "nobody")
    terminal.transactions("list", "--duration-filter", "3600000")
    terminal.transactions("describe", "--transactional-id", topic)
    terminal.transactions("describe-producers", *place)
    terminal.transactions("describe-producers", *place, "--broker-id", "1")
    terminal.transactions("find-hanging", *place, "--max-transaction-timeout", "0")
    terminal.transactions("find-hanging", "--broker-id", "1")
    terminal.transactions("abort", *place, "--start-offset", "5")
    terminal.transactions("abort", *place, "--start-offset", "0")
    terminal.transactions("describe-producers", *place)
    terminal.transactions("describe", "--transactional-id", topic)
    terminal.transactions("forceTerminateTransaction", "--transactionalId", topic)
    terminal.transactions("forceTerminateTransaction", "--transactionalId", f"not-{topic}")
    terminal.transactions("list")


def test_transactions_command(ottla: OttlaNode, kafka: Server, topics: Topics, tools: JavaTools) -> None:
    topic = topics.name()
    said = []
    for server in (kafka, ottla):
        Client(server.bootstrap).create_topics({topic: {}}, {})
        terminal = Terminal(tools, server, topic)
        of_transactions(terminal, JavaMembers(tools, server.bootstrap, topic), topic)
        said.append(terminal.said)
    theirs, ours = said
    assert ours == theirs
