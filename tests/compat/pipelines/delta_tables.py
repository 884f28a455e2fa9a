"""What a Delta table holds, read without Spark."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq


def rows_in(table: Path) -> list[dict[str, Any]]:
    """The rows that the table's log says it has."""
    files: dict[str, None] = {}
    for entry in sorted((table / "_delta_log").glob("*.json")):
        for action in map(json.loads, entry.read_text().splitlines()):
            if "add" in action:
                files[action["add"]["path"]] = None
            elif "remove" in action:
                files.pop(action["remove"]["path"])
    return [row for file in files for row in pq.read_table(table / file).to_pylist()]
