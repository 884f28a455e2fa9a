"""`ottla produce`: lines to records."""
