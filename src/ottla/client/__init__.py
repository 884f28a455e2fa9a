"""The client: producer, consumer and admin over shared connections. `core/` decides, the other modules do the I/O.

async with Client("127.0.0.1:9092") as client, Producer(client) as producer:
    print(await producer.send("orders", b"apples", key=b"alice"))
"""

from ottla.client.admin import Admin, NewTopic, settled
from ottla.client.client import Client
from ottla.client.consumer import BEGINNING, END, Consumer, OnFailure, Received, RecordFailed, Start
from ottla.client.core.errors import EndUnknown, MembershipLost, ProducerFenced, TransactionFailed
from ottla.client.core.names import GroupMetadata, TopicPartition
from ottla.client.group_consumer import GroupConsumer
from ottla.client.producer import Delivery, Producer
from ottla.client.transactions import Transactions
from ottla.rpc.errors import ClientError
from ottla.rpc.ports import Ports

__all__ = [
    "Admin",
    "BEGINNING",
    "Client",
    "ClientError",
    "Consumer",
    "Delivery",
    "END",
    "EndUnknown",
    "GroupConsumer",
    "GroupMetadata",
    "MembershipLost",
    "NewTopic",
    "OnFailure",
    "Ports",
    "Producer",
    "ProducerFenced",
    "Received",
    "RecordFailed",
    "Start",
    "TopicPartition",
    "TransactionFailed",
    "Transactions",
    "settled",
]
