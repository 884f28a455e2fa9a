"""`ottla pipeline`: check a data pipeline and show what it would do."""
