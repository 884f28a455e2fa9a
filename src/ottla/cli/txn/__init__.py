"""`ottla txn`: list, describe and abort transactions."""
