"""Paths in a pipeline count from the directory of its file."""

import os


def resolved(directory: str, path: str) -> str:
    """Addresses (`s3a://...`) stay as they are."""
    return path if "://" in path else os.path.join(os.path.abspath(directory), path)
