"""Ottla: Apache Kafka's system in Python."""

__version__ = "0.1.0.dev0"
