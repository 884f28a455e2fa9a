"""The client: producer, consumer and admin over shared connections. `core/` decides, the rest carries out.

async with Client("127.0.0.1:9092") as client, Producer(client) as producer:
    print(await producer.send("orders", b"apples", key=b"alice"))
"""

from ottla.client.admin import Admin, NewTopic, settled
from ottla.client.client import Client
from ottla.client.consumer import BEGINNING, END, Consumer, OnFailure, Received, RecordFailed, Start
from ottla.client.core.errors import ClientError
from ottla.client.core.names import TopicPartition
from ottla.client.ports import Ports
from ottla.client.producer import Delivery, Producer

__all__ = [
    "Admin",
    "BEGINNING",
    "Client",
    "ClientError",
    "Consumer",
    "Delivery",
    "END",
    "NewTopic",
    "OnFailure",
    "Ports",
    "Producer",
    "Received",
    "RecordFailed",
    "Start",
    "TopicPartition",
    "settled",
]
