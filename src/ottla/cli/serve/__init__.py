"""`ottla serve`: runs a node in the foreground."""
