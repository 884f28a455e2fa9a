"""Open a log with the strictness its last close allows, or refuse it."""

from ottla.config import Config
from ottla.core.log import files
from ottla.core.log.checkpoints import BadCheckpoint, decode_partition_metadata
from ottla.core.log.files import PARTITION_METADATA
from ottla.core.log.state import LogState
from ottla.io.ports import Clock
from ottla.storage.atomic import read_whole
from ottla.storage.evidence import LastClose, left_before_refusal, note_refused
from ottla.storage.partition_files import PartitionFiles
from ottla.storage.recovery import LogDamaged, open_log


def open_as_left(
    here: PartitionFiles, name: str, config: Config, clock: Clock, left: LastClose, listing: dict[str, int]
) -> tuple[bytes | None, LogState]:
    """Returns the topic id, if the directory names one, and the log. Raises LogDamaged. If the log had been closed
    cleanly, the refusal is recorded, so that the next open is equally strict."""
    was_refused = files.REFUSED in listing
    if was_refused:
        left = left_before_refusal(here, left)
    topic_id = _read_topic_id(here, left)
    try:
        log = open_log(here, name, config, clock, left, listing)
    except LogDamaged as damaged:
        if left.clean:
            note_refused(here, left, damaged.text)
        raise
    if was_refused:
        here.disk.remove(f"{here.path}/{files.REFUSED}")
        here.sync_names()
    return topic_id, log


def _read_topic_id(here: PartitionFiles, left: LastClose) -> bytes | None:
    path = f"{here.path}/{PARTITION_METADATA}"
    data = read_whole(here.disk, path)
    try:
        return decode_partition_metadata(data) if data is not None else None
    except BadCheckpoint as error:
        if not left.clean and left.recovery_point == 0:
            return None  # The file was torn by a crash before anything here was synced.
        raise LogDamaged(f"{path} does not say which topic this is: {error}") from error
