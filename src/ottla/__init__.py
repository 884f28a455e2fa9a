"""Ottla: Apache Kafka's system in Python.

The client is at the top; everything else is in its package:

    from ottla import Client, Producer

    async with Client("127.0.0.1:9092") as client, Producer(client) as producer:
        print(await producer.send("orders", b"apples", key=b"alice"))
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.client import (
        BEGINNING,
        END,
        Admin,
        Client,
        ClientError,
        Consumer,
        NewTopic,
        Producer,
        Received,
        Start,
        TopicPartition,
    )

__version__ = "0.1.0.dev0"

__all__ = [
    "Admin",
    "BEGINNING",
    "Client",
    "ClientError",
    "Consumer",
    "END",
    "NewTopic",
    "Producer",
    "Received",
    "Start",
    "TopicPartition",
]


def __getattr__(name: str) -> Any:
    """Import the client on first use, so that commands without a client start quickly."""
    if name not in __all__:
        raise AttributeError(f"module 'ottla' has no attribute {name!r}")
    from ottla import client

    return getattr(client, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
