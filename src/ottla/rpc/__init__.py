"""Connections to brokers, for clients and for other brokers: frames, versions, back-off, errors."""
