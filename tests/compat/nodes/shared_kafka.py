"""One Apache Kafka for all processes of a test run: a JVM takes seconds to start and half a GiB to live.

Rule 1: who needs it first starts it, and stops it when nobody uses it any more.
Rule 2: users hold a shared lock, which goes away with them however they end. The starter takes it alone before it
        stops the node; who comes later finds none and starts another.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from peers.broker import KafkaBroker
from peers.jars import exclusive

from nodes.topics import KEEPING, QUICK_GROUPS

SETTINGS = {"auto.create.topics.enable": "true"} | KEEPING | QUICK_GROUPS


@dataclass(frozen=True)
class SharedKafka:
    bootstrap: str


@contextmanager
def shared_kafka(jars: Path, home: Path) -> Iterator[SharedKafka]:
    address = home / "bootstrap"
    own: KafkaBroker | None = None
    home.mkdir(parents=True, exist_ok=True)
    with (home / "users").open("w") as users:
        with exclusive(home / "starting"):
            if not address.exists():
                own = KafkaBroker(jars, home, SETTINGS)
                own.start()
                address.write_text(own.bootstrap)
            fcntl.flock(users, fcntl.LOCK_SH)
            found = SharedKafka(address.read_text())
        try:
            yield found
        finally:
            fcntl.flock(users, fcntl.LOCK_UN)
            if own is not None:
                with exclusive(home / "starting"):
                    address.unlink()
                fcntl.flock(users, fcntl.LOCK_EX)
                own.stop()
