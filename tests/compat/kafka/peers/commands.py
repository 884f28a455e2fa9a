"""The `ottla` command as somebody at a terminal uses it, in this process."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ottla.cli import main
from peers.broker import wait_until
from peers.clusters import fresh


class Said(NamedTuple):
    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class Ottla:
    """The command in this process, with what it printed."""

    def __init__(self, bootstrap: str, capture: pytest.CaptureFixture[bytes], directory: Path) -> None:
        self.bootstrap = bootstrap
        self._capture = capture
        self._file = directory / "input"

    def __call__(self, *arguments: object) -> Said:
        code = main([*map(str, arguments), "--bootstrap", self.bootstrap])
        out, err = self._capture.readouterr()
        return Said(code, out, err.decode())

    def produce(self, topic: str, text: bytes, *options: object) -> Said:
        self._file.write_bytes(text)
        return self("produce", topic, "--file", self._file, *options)

    def topic(self, name: str, *options: object) -> str:
        """A new topic that the broker knows of: Kafka's answers before it does."""
        topic = fresh(name)
        assert self("topic", "create", topic, *options).code == 0
        wait_until(lambda: self("topic", "describe", topic).code == 0, f"the broker knows of {topic}")
        return topic
