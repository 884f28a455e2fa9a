"""`ottla log` on directories that real Kafka wrote: it shows what Kafka serves and finds only the damage done."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from peers.client import Read
from peers.written import Written

from ottla.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[dict[str, Any]]]:
    code = main(["log", *map(str, arguments), "--json"])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def partitions(data: Path) -> list[Path]:
    return sorted(path for path in data.iterdir() if path.is_dir())


def as_bytes(told: Any) -> bytes | None:
    if isinstance(told, dict):
        return base64.b64decode(told["base64"])
    return None if told is None else str(told).encode()


def test_nothing_is_wrong_after_a_clean_stop(kafka_written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    """Includes the internal topics, all codecs, transactions, compacted and trimmed logs."""
    for path in partitions(kafka_written.clean):
        code, lines = run(capsys, "verify", path)
        assert (code, lines[:-1]) == (0, []), path.name


def test_damage_and_nothing_else_is_found_after_a_kill(
    kafka_written: Written, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = {}
    for path in partitions(kafka_written.killed):
        _, lines = run(capsys, "verify", path)
        problems = [line["what"] for line in lines if line["type"] == "problem"]
        if problems:
            damaged[path.name] = problems
    assert damaged.keys() == {"rotten-0", "torn-0"}
    assert "CRC" in damaged["rotten-0"][0]
    assert "are left" in damaged["torn-0"][0]


def test_dump_shows_the_records_that_kafka_serves(kafka_written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    for name, truth in kafka_written.truth.items():
        _, lines = run(capsys, "dump", kafka_written.clean / name, "--records", "--from", truth.log_start)
        control, shown = False, []
        for line in lines:
            if line["type"] == "batch":
                control = line["control"] is not None
            elif line["type"] == "record" and not control:
                headers = [(header, as_bytes(value)) for header, value in line["headers"]]
                shown.append(
                    Read(line["offset"], line["timestamp"], as_bytes(line["key"]), as_bytes(line["value"]), headers)
                )
        assert [record._replace(headers=list(record.headers or [])) for record in truth.records] == shown, name


def test_internal_topics_are_explained(kafka_written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    """Every record that Kafka wrote to its own topics is of a type that is known."""
    for name in ("__transaction_state-0", "__cluster_metadata-0"):
        _, lines = run(capsys, "dump", kafka_written.clean / name, "--records")
        control, explained = False, 0
        for line in lines:
            if line["type"] == "batch":
                control = line["control"] is not None
            elif line["type"] == "record" and not control:
                assert line["decoded"], line
                explained += 1
        assert explained > 10
