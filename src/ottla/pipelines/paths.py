"""Paths in a pipeline count from the directory of its file. Addresses (`s3a://...`, `file:/...`) stay as they are."""

import os
import re
from typing import Final
from urllib.parse import unquote, urlsplit

_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_THIS_MACHINE: Final = ("", "localhost")


def resolved(directory: str, path: str) -> str:
    return path if _ADDRESS.match(path) else os.path.join(os.path.abspath(directory), path)


def local_path(path: str) -> str | None:
    """What a path or a `file:` address names on this machine; None for addresses of anything else."""
    if not _ADDRESS.match(path):
        return path
    address = urlsplit(path)
    return unquote(address.path) if address.scheme == "file" and address.netloc in _THIS_MACHINE else None
