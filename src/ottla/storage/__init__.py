"""Logs on disk: carries out on `io`'s Disk what `core/log` decides."""
