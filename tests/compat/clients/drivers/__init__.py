"""The clients that people use, behind one small interface: send these records, read that many."""

from drivers.aio import AioKafka
from drivers.confluent import Confluent
from drivers.driver import CODECS, Driver, Got, Sent
from drivers.pure_python import KafkaPython

DRIVERS: tuple[Driver, ...] = (Confluent(), KafkaPython(), AioKafka())

__all__ = ["CODECS", "DRIVERS", "Driver", "Got", "Sent"]
