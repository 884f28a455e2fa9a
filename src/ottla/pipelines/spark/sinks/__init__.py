"""Where rows go: each sink writes whole epochs, and an epoch that is written twice is there once.

Each keeps (checkpoint, epoch) atomically with the data: a topic in the transaction, PostgreSQL in the same SQL
transaction, Delta in its log, Parquet in a manifest that appears by renaming.
"""
