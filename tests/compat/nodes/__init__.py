"""Ottla nodes as their users run them: the installed command, in a process and a directory of its own."""
