"""`ottla topic`: make, list, describe, alter and delete topics."""
