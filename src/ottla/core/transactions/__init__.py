"""Transactions: which producer holds a transactional id, what its transaction has written to, and how it ends."""
