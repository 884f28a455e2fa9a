"""Transactions: the producer of each transactional id, the partitions of its transaction, and how it ends."""
