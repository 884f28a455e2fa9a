"""Kafka's protocol: every message of every version, declared once. Imports nothing of ours, performs no I/O."""
