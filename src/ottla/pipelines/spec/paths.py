"""Paths in a pipeline: relative to the directory of its file. Addresses (`s3a://...`, `file:/...`) are not changed."""

import os
import re
from typing import Final
from urllib.parse import unquote, urlsplit

_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_THIS_MACHINE: Final = ("", "localhost")


def resolved(directory: str, path: str) -> str:
    return path if _ADDRESS.match(path) else os.path.join(os.path.abspath(directory), path)


def local_path(path: str) -> str | None:
    """The local path that a path or a `file:` address names; None for any other address."""
    if not _ADDRESS.match(path):
        return path
    address = urlsplit(path)
    return unquote(address.path) if address.scheme == "file" and address.netloc in _THIS_MACHINE else None
