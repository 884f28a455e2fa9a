"""`ottla consume`: records to lines."""
