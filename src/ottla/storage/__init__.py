"""Logs on disk. Executes on a `Disk` (`io/ports.py`) the decisions of `core/log`."""
