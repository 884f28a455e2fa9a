"""The latest record of each key of a partition up to a pin: read from a file, or made and written to it (`table_pins`).

Rule 1: a key is not in it if its latest record has no value, or was removed from the log by retention.
Rule 2: the file appears whole, and is synced before its first record is returned.
"""

import os
import tempfile
from collections.abc import Iterator
from typing import Any, Final

import pyarrow
import pyarrow.compute
import pyarrow.ipc

from ottla.pipelines.source.read_options import TopicReadOptions
from ottla.pipelines.source.table_pins import SUFFIX, TablePart
from ottla.pipelines.source.topic_fetcher import SCHEMA, fetch_range

_ROWS_PER_BATCH: Final = 8_192


def read_part(reading: TopicReadOptions, part: TablePart) -> Iterator[Any]:
    """A partition of the table as Arrow batches of `SCHEMA`. Raises ClientError, DataLost or UnreadableRecords."""
    if not os.path.exists(part.snapshot):
        _keep(_made(reading, part), part.snapshot)
    with pyarrow.memory_map(part.snapshot) as file, pyarrow.ipc.open_file(file) as kept:
        for number in range(kept.num_record_batches):
            yield kept.get_batch(number)


def latest_of_each_key(records: Any, first_offset: int) -> Any:
    """The latest record of each key in a table of `SCHEMA`, without records before `first_offset`."""
    newest = records.group_by("_key", use_threads=False).aggregate([("_offset", "max")])["_offset_max"]
    compute = pyarrow.compute
    wanted = compute.and_(
        compute.is_in(records["_offset"], value_set=newest.combine_chunks()),
        compute.and_(compute.is_valid(records["_value"]), compute.greater_equal(records["_offset"], first_offset)),
    )
    return records.filter(wanted)


def _made(reading: TopicReadOptions, part: TablePart) -> Any:
    parts, start = [], part.wanted.start
    if part.base and os.path.exists(part.base):
        with pyarrow.memory_map(part.base) as file:
            parts.append(pyarrow.ipc.open_file(file).read_all())
        start = part.base_end
    since = list(fetch_range(reading, part.wanted._replace(start=start))) if start < part.wanted.end else []
    parts.append(pyarrow.Table.from_batches(since, SCHEMA))
    return latest_of_each_key(pyarrow.concat_tables(parts), part.wanted.start)


def _keep(table: Any, path: str) -> None:
    made, temporary = tempfile.mkstemp(prefix=".table-", suffix=SUFFIX + ".new", dir=os.path.dirname(path))
    try:
        with open(made, "wb") as file:
            with pyarrow.ipc.new_file(file, SCHEMA) as writer:
                writer.write_table(table, max_chunksize=_ROWS_PER_BATCH)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
