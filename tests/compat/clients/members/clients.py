"""The module of each client, imported when it is asked for."""

from importlib import import_module
from typing import cast

from members.interface import Client

MODULES = {"confluent-kafka": "librdkafka", "kafka-python": "pure_python", "aiokafka": "aio"}


def client_of(name: str) -> Client:
    return cast(Client, import_module(f"members.{MODULES[name]}"))
