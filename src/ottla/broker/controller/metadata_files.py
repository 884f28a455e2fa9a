"""The files beside the metadata log: snapshots, `quorum-state` and `bootstrap.checkpoint`.

Rule 1: a snapshot gets its name when it is complete and synced. A file that ends in `.part` was never finished and is
        removed.
Rule 2: a directory in which a node has run contains its metadata. If that is missing, the node does not start.
Rule 3: only the newest snapshot is loaded. If it cannot be read, that is a fault, not a reason to load an older one:
        records that the log has dropped since then are in no other file.
"""

from ottla.core.log.files import METADATA_TOPIC, directory_name
from ottla.core.metadata.control import (
    QUORUM_STATE_FILE,
    BadQuorumState,
    QuorumState,
    Voters,
    decode_quorum_state,
    encode_quorum_state,
)
from ottla.core.metadata.features import LATEST_LEVEL, bootstrap_records
from ottla.core.metadata.records import MetadataRecord
from ottla.core.metadata.snapshot import (
    BOOTSTRAP_FILE,
    SUFFIX,
    BadMetadataSnapshot,
    Snapshot,
    SnapshotId,
    decode_snapshot,
    encode_snapshot,
)
from ottla.observe.trace import warn
from ottla.storage.atomic import read_whole, write_whole
from ottla.storage.log_directory import LogDirectory
from ottla.storage.recovery import LogDamaged

_UNFINISHED = (".part", ".tmp")


class MetadataFiles:
    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory
        self._disk = directory.disk
        self._parent = directory.path
        self.path = f"{directory.path}/{directory_name(METADATA_TOPIC, 0)}"

    def prepare(self) -> None:
        """Create the directory if it is missing, and remove unfinished snapshots."""
        if not self._disk.exists(self.path):
            if (used := self._directory.sign_of_use(metadata=False)) is not None:
                raise LogDamaged(
                    f"{self.path} is missing, though a node has run here: there is {used}. It holds the names, ids and "
                    f"settings of all topics; without it the node would begin as a new, empty cluster. Restore the "
                    f"directory, or empty {self._parent} to give up what is in it"
                )
            self._disk.make_directory(self.path)
            self._disk.sync_directory(self._parent)
        for name in self._disk.list(self.path):
            if SUFFIX in name and name.endswith(_UNFINISHED):
                self._disk.remove(f"{self.path}/{name}")

    # Snapshots.

    def snapshots(self) -> list[SnapshotId]:
        """All snapshots in the directory, the oldest first."""
        return sorted(found for name in self._disk.list(self.path) if (found := SnapshotId.parse(name)) is not None)

    def snapshot_bytes(self) -> int:
        return sum(self._disk.size(f"{self.path}/{one.file_name}") for one in self.snapshots())

    def read_snapshot(self, snapshot: SnapshotId) -> Snapshot:
        path = f"{self.path}/{snapshot.file_name}"
        try:
            return decode_snapshot(read_whole(self._disk, path) or b"")
        except BadMetadataSnapshot as error:
            raise LogDamaged(
                f"{path} cannot be read ({error}), and the metadata log goes on from it: restore the file"
            ) from error

    def write_snapshot(self, snapshot: SnapshotId, batches: list[bytes]) -> None:
        write_whole(self._disk, f"{self.path}/{snapshot.file_name}", b"".join(batches))

    def remove_snapshots_before(self, newest: SnapshotId) -> None:
        for one in self.snapshots():
            if one < newest:
                self._disk.remove(f"{self.path}/{one.file_name}")
        self._disk.sync_directory(self.path)

    # The file quorum-state.

    def read_state(self) -> QuorumState | None:
        path = f"{self.path}/{QUORUM_STATE_FILE}"
        data = read_whole(self._disk, path)
        try:
            return decode_quorum_state(data) if data is not None else None
        except BadQuorumState as error:
            raise LogDamaged(f"{path} cannot be read ({error}): restore it, a vote must not be forgotten") from error

    def write_state(self, state: QuorumState, static_voters: Voters | None) -> None:
        write_whole(self._disk, f"{self.path}/{QUORUM_STATE_FILE}", encode_quorum_state(state, static_voters))

    # The records a new log begins with.

    def bootstrap(self, now_ms: int) -> list[MetadataRecord]:
        """The records of `bootstrap.checkpoint`. If the directory was not formatted, the file is written with the
        features of this release."""
        path = f"{self._parent}/{BOOTSTRAP_FILE}"
        data = read_whole(self._disk, path)
        if data is not None:
            try:
                return decode_snapshot(data).records
            except BadMetadataSnapshot as error:
                warn("bootstrap.unreadable", path=path, error=error)
        records = bootstrap_records()
        batches = encode_snapshot(records, level=LATEST_LEVEL, epoch=0, now_ms=now_ms)
        write_whole(self._disk, path, b"".join(batches))
        return records
