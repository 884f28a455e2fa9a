"""Identities of clients, and what they may do."""
