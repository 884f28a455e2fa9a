"""Shared by all replicated state machines: decisions, shards of internal topics, deadlines."""
