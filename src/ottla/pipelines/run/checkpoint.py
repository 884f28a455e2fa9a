"""The files that Ottla keeps in a pipeline's checkpoint, beside Spark's own. Each sink has a directory for Spark's.

Rule 1: `ottla-pipeline.json` names the pipeline that the checkpoint belongs to: its spec, what the first run settled
        (parallelism, inferred columns) and the versions that wrote it. It is written before the first epoch begins.
Rule 2: a run with another spec is refused if `compare` finds that the checkpoint does not fit it. It is also refused
        while an epoch is unfinished: its rows must be computed again by the old spec.
Rule 3: `ottla-owner.json` names the run that owns the checkpoint, which is the one that began last. An older run finds
        at its next epoch that it is not the owner and stops.
Rule 4: `ottla-status.json` holds the run's status and may be lost without harm. Files appear whole, by a rename.
"""

import json
import os
import platform
import re
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from ottla import __version__
from ottla.observe.trace import warn
from ottla.pipelines.authoring.document import canonical, from_canonical, spec_hash
from ottla.pipelines.run.compare import compare
from ottla.pipelines.spec.model import Pipeline, Sink
from ottla.pipelines.spec.paths import local_path
from ottla.pipelines.spec.sinks import kind_of

PIPELINE_FILE: Final = "ottla-pipeline.json"
OWNER_FILE: Final = "ottla-owner.json"
STATUS_FILE: Final = "ottla-status.json"
STOP_FILE: Final = "ottla-stop"
FORMAT: Final = 1
_EPOCH: Final = re.compile(r"\d+")


class CheckpointRefused(Exception):
    """The pipeline cannot run with this checkpoint. The text says why and what to do, a line for each reason."""


class RunFenced(Exception):
    """Another run of the pipeline began later and owns the checkpoint."""


@dataclass(frozen=True)
class CheckpointFacts:
    """The content of `ottla-pipeline.json`."""

    checkpoint_id: str
    """The checkpoint's id. Sinks keep it with their last epoch, so that epochs of another checkpoint are recognised."""
    pipeline: Pipeline
    parallelism: Mapping[str, int]
    columns: Mapping[str, str]
    """The inferred columns by source, in Spark's JSON."""
    versions: Mapping[str, str] = field(default_factory=dict)


class Checkpoint:
    def __init__(self, directory: str) -> None:
        path = local_path(directory)
        if path is None:
            raise CheckpointRefused(
                f"checkpoint {directory}: the run keeps files of its own there, so it must be a directory on this "
                "machine, given as a path or as file:/PATH. On a Spark cluster all machines must share it"
            )
        self.directory = os.path.abspath(path)
        self._told = True

    def sink(self, name: str) -> str:
        """The directory in which Spark keeps the offsets, epochs and state of a sink's query."""
        return os.path.join(self.directory, name)

    def load(self) -> CheckpointFacts | None:
        """Read `ottla-pipeline.json`; None if no run has used the checkpoint. Raises CheckpointRefused if it cannot be
        read."""
        path = self._path(PIPELINE_FILE)
        document = read_json(path)
        if document is None:
            return None
        try:
            if document["format"] != FORMAT:
                raise ValueError(f"format {document['format']}")
            return CheckpointFacts(
                document["id"],
                from_canonical(document["pipeline"], path),
                document["parallelism"],
                document["columns"],
                document["versions"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointRefused(
                f"{path} cannot be read ({error}): another version of Ottla wrote it, or it was changed by hand"
            ) from error

    def take(self, pipeline: Pipeline) -> CheckpointFacts | None:
        """The facts that an earlier run has settled; None if there was no run. Raises CheckpointRefused if the pipeline
        does not fit the checkpoint."""
        kept = self.load()
        if kept is None:
            return None
        if faults := compare(kept.pipeline, pipeline):
            raise CheckpointRefused("\n".join(f"checkpoint {self.directory}: {fault}" for fault in faults))
        if _computation(kept.pipeline) != _computation(pipeline):
            for sink in kept.pipeline.sinks:
                if (epoch := self.unfinished(sink.name)) is not None:
                    raise CheckpointRefused(
                        f"checkpoint {self.directory}: epoch {epoch} of sink {sink.name} is unfinished, and the "
                        "pipeline was changed since. Run the old pipeline until it has finished the epoch "
                        "(`ottla pipeline run --once`), then run the new one."
                    )
        return kept

    def keep(
        self, pipeline: Pipeline, parallelism: Mapping[str, int], columns: Mapping[str, str], engine: Mapping[str, str]
    ) -> CheckpointFacts:
        """Write the spec and what this run has settled."""
        before = self.load()
        kept = CheckpointFacts(
            before.checkpoint_id if before is not None else uuid.uuid4().hex,
            pipeline,
            dict(parallelism),
            dict(columns),
            {"ottla": __version__, "python": platform.python_version(), **engine},
        )
        written = {
            "format": FORMAT,
            "id": kept.checkpoint_id,
            "hash": spec_hash(pipeline),
            "pipeline": canonical(pipeline),
            "parallelism": kept.parallelism,
            "columns": kept.columns,
            "versions": kept.versions,
        }
        os.makedirs(self.directory, exist_ok=True)
        write_json(self._path(PIPELINE_FILE), written)
        return kept

    def unfinished(self, sink: str) -> int | None:
        """The epoch that Spark has begun and not finished; None if there is none."""
        begun, ended = (self._epochs(sink, log) for log in ("offsets", "commits"))
        return max(begun) if begun and max(begun) not in ended else None

    def _epochs(self, sink: str, log: str) -> set[int]:
        try:
            names = os.listdir(os.path.join(self.sink(sink), log))
        except FileNotFoundError:
            return set()
        return {int(name) for name in names if _EPOCH.fullmatch(name)}

    def own(self, run: str) -> None:
        """Make this run the owner of the checkpoint."""
        os.makedirs(self.directory, exist_ok=True)
        write_json(self._path(OWNER_FILE), {"run": run, "pid": os.getpid(), "host": platform.node()})
        self._remove(STOP_FILE)

    def check_owner(self, run: str) -> None:
        """Raises RunFenced if another run has become the owner."""
        owner = read_json(self._path(OWNER_FILE)) or {}
        if owner.get("run") != run:
            raise RunFenced(
                f"another run of the pipeline took over (process {owner.get('pid')} on {owner.get('host')}); "
                "this one stops"
            )

    def ask_to_stop(self) -> None:
        write_json(self._path(STOP_FILE), {})

    @property
    def stop_asked(self) -> bool:
        return os.path.exists(self._path(STOP_FILE))

    def status(self) -> "RunStatus | None":
        document = read_json(self._path(STATUS_FILE))
        return None if document is None else RunStatus.read(document)

    def tell(self, status: "RunStatus") -> None:
        """Write the status, if the run still owns the checkpoint: a fenced run must not overwrite its successor's.

        A full or missing disk loses the status and does not stop the run.
        """
        try:
            if (read_json(self._path(OWNER_FILE)) or {}).get("run") == status.run:
                write_json(self._path(STATUS_FILE), asdict(status))
            self._told = True
        except OSError as error:
            if self._told:
                warn("pipeline.status_not_kept", checkpoint=self.directory, reason=str(error))
            self._told = False

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._path(name))


@dataclass
class SinkStatus:
    """The state of a sink's query. Counts are of this run."""

    epoch: int = -1
    """The last epoch that was finished."""
    records_read: int = 0
    records_per_second: float = 0.0
    rows_written: int = 0
    dead_letters: int = 0
    late_rows: int = 0
    """Rows dropped because the watermark had passed them, counted by Spark after partial aggregation."""
    batch_ms: list[int] = field(default_factory=list)
    """The durations of the latest epochs, the newest last."""
    epochs_skipped: int = 0
    """Parts of epochs that an earlier attempt had written."""
    restarts: int = 0
    error: str = ""


@dataclass
class RunStatus:
    pipeline: str
    run: str
    hash: str
    state: str
    """starting, running, stopped (on request), finished (--once, or a replay), failed."""
    pid: int
    pid_started: float
    """When the process began, because process numbers are reused."""
    host: str
    started_ms: int
    updated_ms: int = 0
    lag_records: int | None = None
    lag_ms: int | None = None
    reason: str = ""
    sinks: dict[str, SinkStatus] = field(default_factory=dict)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "RunStatus":
        """Fields that this version does not know are ignored."""
        known = {name: value for name, value in document.items() if name in cls.__dataclass_fields__}
        sinks = {
            name: SinkStatus(**{key: one for key, one in sink.items() if key in SinkStatus.__dataclass_fields__})
            for name, sink in known.pop("sinks", {}).items()
        }
        return cls(**known, sinks=sinks)


def _computation(pipeline: Pipeline) -> str:
    """The canonical spec without the keys that may change while an epoch is unfinished: addresses, the checkpoint's
    path, and how sinks send their rows."""
    sinks = tuple(_without_transport(sink) for sink in pipeline.sinks)
    return canonical(replace(pipeline, bootstrap="", checkpoint="", sinks=sinks))


def _without_transport(sink: Sink) -> Sink:
    keys = kind_of(sink).keys_where(lambda key: key.is_transport)
    return replace(sink, **{key.attribute: key.default for key in keys})


def read_json(path: str) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8") as file:
            document: dict[str, Any] = json.load(file)
            return document
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CheckpointRefused(f"{path} cannot be read ({error}): it was changed by hand") from error


def write_json(path: str, document: Mapping[str, Any]) -> None:
    """Write a file that appears whole and is synced, because runs rely on it after a crash."""
    made, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(path)}-", dir=os.path.dirname(path))
    try:
        with open(made, "w", encoding="utf-8") as file:
            json.dump(document, file, ensure_ascii=False, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
