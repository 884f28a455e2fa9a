"""Kafka's own command-line tools, with Kafka's own Java client inside."""

import json
import re
from pathlib import Path

import pytest
from drivers import CODECS, Sent
from drivers.confluent import Confluent
from nodes.java_tools import JavaTools
from nodes.topics import Server, Topics
from peers.jvm import ToolFailedError

T = 1_700_000_000_000
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def tool(tools: JavaTools, server: Server, name: str, *arguments: str, stdin: str = "") -> str:
    return tools.run(name, "--bootstrap-server", server.bootstrap, *arguments, stdin=stdin).stdout


def test_topic_command(ottla: Server, topics: Topics, tools: JavaTools) -> None:
    topic = topics.name()
    setting = ["--config", "retention.ms=1000000"]
    tool(tools, ottla, TOPICS, "--create", "--topic", topic, "--partitions", "2", *setting)
    tool(tools, ottla, TOPICS, "--alter", "--topic", topic, "--partitions", "4")
    described = tool(tools, ottla, TOPICS, "--describe", "--topic", topic)
    assert re.search(r"PartitionCount: 4\s+ReplicationFactor: 1\s+Configs: .*retention\.ms=1000000", described)
    assert len(re.findall(r"Leader: 1\s+Replicas: 1\s+Isr: 1", described)) == 4
    assert topic in tool(tools, ottla, TOPICS, "--list").split()
    tool(tools, ottla, TOPICS, "--delete", "--topic", topic)
    with pytest.raises(ToolFailedError, match="does not exist as expected"):
        tool(tools, ottla, TOPICS, "--describe", "--topic", topic)


def test_config_command(ottla: Server, topics: Topics, tools: JavaTools) -> None:
    topic = topics.create(ottla)
    named = ["--entity-type", "topics", "--entity-name", topic]
    tool(tools, ottla, CONFIGS, "--alter", *named, "--add-config", "cleanup.policy=[compact,delete],segment.ms=5000")
    described = tool(tools, ottla, CONFIGS, "--describe", *named)
    assert "cleanup.policy=compact,delete" in described
    assert "segment.ms=5000" in described
    tool(tools, ottla, CONFIGS, "--alter", *named, "--delete-config", "segment.ms")
    assert "segment.ms" not in tool(tools, ottla, CONFIGS, "--describe", *named)
    broker = tool(tools, ottla, CONFIGS, "--describe", "--all", "--entity-type", "brokers", "--entity-name", "1")
    assert "log.segment.bytes=1073741824" in broker
    with pytest.raises(ToolFailedError, match=r"segment\.ms=soon"):
        tool(tools, ottla, CONFIGS, "--alter", *named, "--add-config", "segment.ms=soon")


def test_config_command_changes_the_levels_of_loggers(ottla: Server, tools: JavaTools) -> None:
    """It asks for all of them first, and takes only names that are among them."""
    named = ["--entity-type", "broker-loggers", "--entity-name", "1"]
    tool(tools, ottla, CONFIGS, "--alter", *named, "--add-config", "ottla.summary=ERROR")
    described = tool(tools, ottla, CONFIGS, "--describe", *named)
    assert "ottla.summary=ERROR" in described
    assert "ottla.request=INFO" in described
    tool(tools, ottla, CONFIGS, "--alter", *named, "--delete-config", "ottla.summary")
    assert "ottla.summary=INFO" in tool(tools, ottla, CONFIGS, "--describe", *named)
    with pytest.raises(ToolFailedError, match=r"Invalid broker logger\(s\): ottla\.nonsense"):
        tool(tools, ottla, CONFIGS, "--alter", *named, "--add-config", "ottla.nonsense=INFO")
    with pytest.raises(ToolFailedError, match="must be one of FATAL"):
        tool(tools, ottla, CONFIGS, "--alter", *named, "--add-config", "ottla.summary=loud")


def test_offsets_and_records(ottla: Server, topics: Topics, tools: JavaTools, tmp_path: Path) -> None:
    topic = topics.create(ottla)
    Confluent().produce(ottla.bootstrap, topic, [Sent(None, b"v", T + number) for number in range(5)])
    request = tmp_path / "records.json"
    request.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 2}], "version": 1}))
    deleted = tool(tools, ottla, "org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", str(request))
    assert f"{topic}-0\tlow_watermark: 2" in deleted.replace("partition: ", "").replace(" \t", "\t")
    for time, offset in {"earliest": 2, "latest": 5, "max-timestamp": 4, str(T + 3): 3}.items():
        shell = "org.apache.kafka.tools.GetOffsetShell"
        assert tool(tools, ottla, shell, "--topic", topic, "--time", time).strip() == f"{topic}:0:{offset}"


def test_log_dirs_command(ottla: Server, topics: Topics, tools: JavaTools) -> None:
    topic = topics.create(ottla, partitions=2)
    Confluent().produce(ottla.bootstrap, topic, [Sent(None, b"v" * 1000, T)])
    said = tool(tools, ottla, "org.apache.kafka.tools.LogDirsCommand", "--describe", "--topic-list", topic)
    [answer] = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    [directory] = answer["brokers"][0]["logDirs"]
    sizes = {one["partition"]: one["size"] for one in directory["partitions"]}
    assert directory["error"] is None
    assert sizes[f"{topic}-0"] > 1000
    assert sizes[f"{topic}-1"] == 0


@pytest.mark.parametrize("codec", CODECS)
def test_console_producer_and_consumer(ottla: Server, topics: Topics, tools: JavaTools, codec: str) -> None:
    topic = topics.create(ottla)
    keyed = ["--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"]
    to = ["--topic", topic, "--compression-codec", codec]
    tool(tools, ottla, CONSOLE_PRODUCER, *to, *keyed, stdin="h:1\tk1\tv1\nh:2\tk2\tv2\n")
    shown = ["key", "headers", "offset", "partition"]
    read = tool(
        tools,
        ottla,
        CONSOLE_CONSUMER,
        *("--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", "2"),
        *(part for name in shown for part in ("--formatter-property", f"print.{name}=true")),
    )
    assert read.splitlines() == [
        "Partition:0\tOffset:0\th:1\tk1\tv1",
        "Partition:0\tOffset:1\th:2\tk2\tv2",
    ]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_producer_performance(ottla: Server, topics: Topics, tools: JavaTools, acks: str) -> None:
    topic = topics.create(ottla, partitions=3)
    said = tools.run(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", "50000", "--record-size", "100", "--throughput", "-1"),
        *("--bootstrap-server", ottla.bootstrap, "--command-property", f"acks={acks}"),
    ).stdout
    assert "50000 records sent" in said
    assert len(Confluent().consume_all(ottla.bootstrap, topic, partitions=3, count=50_000)) == 50_000


def test_every_api_is_offered_in_a_version_that_kafka_speaks(ottla: Server, tools: JavaTools) -> None:
    said = tool(tools, ottla, "org.apache.kafka.tools.BrokerApiVersionsCommand")
    offered = re.findall(r"(\w+)\(\d+\): (.+?)\[?", said)
    assert "Produce(0): 0 to 13 [usable: 13]" in said
    assert offered
    assert not re.search(r"\w+\(\d+\): (?!UNSUPPORTED).*unusable", said)
