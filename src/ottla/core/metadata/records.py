"""The type of the records of the metadata log."""

from typing import Any

MetadataRecord = Any
"""An instance of one of the classes in `wire/records/metadata.py`."""
