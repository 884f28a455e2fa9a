"""`ottla produce`: sends lines as records."""
