"""`ottla completion`: a script that lets the shell complete commands and options."""
