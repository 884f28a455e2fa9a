"""A setting either has an effect or says that it has none: the code is read to find out."""

import ast
from collections.abc import Iterator
from pathlib import Path

from ottla.config.notation import Setting
from ottla.config.registry import AREAS

PACKAGE = Path(__file__).parents[3] / "src" / "ottla"
DECLARED = {name: value for area in AREAS for name, value in vars(area).items() if isinstance(value, Setting)}
# Modules of ottla.config that read values and do not declare them.
READERS = {"config.py", "listeners.py"}

# What `ottla serve` reads: the broker is being built, and takes its lines out of this list.
OF_THE_BROKER = {
    "AUTO_CREATE_TOPICS_ENABLE",
    "BROKER_RACK",
    "DEFAULT_REPLICATION_FACTOR",
    "DELETE_TOPIC_ENABLE",
    "FETCH_MAX_BYTES",
    "INTERNAL_METADATA_DELETE_DELAY_MILLIS",
    "INTERNAL_METADATA_LOG_SEGMENT_BYTES",
    "INTERNAL_METADATA_MAX_BATCH_SIZE_IN_BYTES",
    "LOG_CLEANER_ENABLE",
    "LOG_CLEANER_IO_BUFFER_SIZE",
    "LOG_CLEANER_IO_MAX_BYTES_PER_SECOND",
    "LOG_DIR",
    "LOG_DIRS",
    "LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS",
    "LOG_INITIAL_TASK_DELAY_MS",
    "MAX_CONNECTIONS_PER_IP_OVERRIDES",
    "MAX_CONNECTION_CREATION_RATE",
    "MAX_REQUEST_PARTITION_SIZE_LIMIT",
    "METADATA_LOG_DIR",
    "METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS",
    "METADATA_LOG_MAX_SNAPSHOT_INTERVAL_MS",
    "METADATA_LOG_SEGMENT_BYTES",
    "METADATA_LOG_SEGMENT_MS",
    "METADATA_MAX_IDLE_INTERVAL_MS",
    "METADATA_MAX_RETENTION_BYTES",
    "METADATA_MAX_RETENTION_MS",
    "NUM_PARTITIONS",
    "NUM_RECOVERY_THREADS_PER_DATA_DIR",
    "PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS",
    "REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS",
    "SOCKET_LISTEN_BACKLOG_SIZE",
    "SOCKET_RECEIVE_BUFFER_BYTES",
    "SOCKET_SEND_BUFFER_BYTES",
}


def _read() -> set[str]:
    """Constants of settings that code outside the declarations names."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        if path.parent.name != "config" or path.name in READERS:
            found |= set(_names(ast.parse(path.read_text())))
    return found & set(DECLARED)


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def _read_through_others(read: set[str]) -> set[str]:
    """What stands in for, overrules or bounds a setting that is read has its effect through that."""
    through = set()
    for setting in (DECLARED[name] for name in read):
        through |= {fallback for fallback, _ in setting.falls_back_to}
        through |= {one for one in (setting.overruled_by, setting.below, setting.not_below) if one}
    return {name for name, setting in DECLARED.items() if setting in through}


def test_what_code_reads_is_not_marked_as_without_effect() -> None:
    marked = {name for name in _read() if DECLARED[name].inert}
    assert marked == set(), "these have an effect now: take `inert` out of their declarations"


def test_what_no_code_reads_is_marked_as_without_effect() -> None:
    read = _read()
    unmarked = {name for name, setting in DECLARED.items() if not setting.inert} - read - _read_through_others(read)
    assert unmarked - OF_THE_BROKER == set(), "nothing reads these: mark them with `inert` and the reason"
