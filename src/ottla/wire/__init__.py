"""Kafka's protocol: every message in every version, declared once. Imports no other package of Ottla, performs no
I/O."""
