"""The kernel in plain Python: the specification of what it does, and the oracle a faster one is tested against."""
