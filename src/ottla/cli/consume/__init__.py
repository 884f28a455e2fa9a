"""`ottla consume`: prints records as lines."""
