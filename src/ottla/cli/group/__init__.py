"""`ottla group`: list, describe, reset and delete groups."""
