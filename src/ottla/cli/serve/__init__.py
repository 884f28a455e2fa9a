"""`ottla serve`: a node in the foreground."""
