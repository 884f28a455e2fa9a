"""What Ottla keeps in a pipeline's checkpoint beside Spark's own files, one directory of which is each sink's.

Rule 1: `ottla-pipeline.json` says which pipeline the checkpoint belongs to: its spec, what the first run settled
        (parallelism, inferred columns) and which versions wrote it. It is there before the first epoch begins.
Rule 2: a run with another spec is refused where `compare` finds that the checkpoint would not survive it, and also
        while an epoch has begun and not ended: its rows must be computed again as they were.
Rule 3: `ottla-owner.json` names the run that owns the checkpoint: the one that began last. Another finds at its next
        epoch that it is not the owner any more, and stops.
Rule 4: `ottla-status.json` says how the run gets on; it may be lost without harm. Files appear whole, by renaming.
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
from ottla.pipelines.compare import compare
from ottla.pipelines.document import canonical, from_canonical, spec_hash
from ottla.pipelines.paths import local_path
from ottla.pipelines.spec import Codec, Pipeline, TopicSink

PIPELINE_FILE: Final = "ottla-pipeline.json"
OWNER_FILE: Final = "ottla-owner.json"
STATUS_FILE: Final = "ottla-status.json"
STOP_FILE: Final = "ottla-stop"
FORMAT: Final = 1
_EPOCH: Final = re.compile(r"\d+")


class CheckpointRefused(Exception):
    """The pipeline cannot go on with this checkpoint; the text says why and what to do, a line for each reason."""


class Fenced(Exception):
    """Another run of the pipeline began later and owns the checkpoint."""


@dataclass(frozen=True)
class Kept:
    """What `ottla-pipeline.json` says."""

    checkpoint_id: str
    """Which checkpoint counts the epochs: sinks keep it beside theirs."""
    pipeline: Pipeline
    parallelism: Mapping[str, int]
    columns: Mapping[str, str]
    """Of sources whose columns were inferred, as the engine writes them down."""
    versions: Mapping[str, str] = field(default_factory=dict)


class Checkpoint:
    def __init__(self, directory: str) -> None:
        path = local_path(directory)
        if path is None:
            raise CheckpointRefused(
                f"checkpoint {directory}: the run keeps notes of its own there, so it must be a directory that this "
                "machine has, as a path or as file:/PATH; one that all machines of the Spark cluster share, where "
                "there is a cluster"
            )
        self.directory = os.path.abspath(path)
        self._told = True

    def sink(self, name: str) -> str:
        """Where Spark keeps the offsets, the epochs and the state of a sink's query."""
        return os.path.join(self.directory, name)

    def load(self) -> Kept | None:
        """None where no run has been. Raises CheckpointRefused for what cannot be read."""
        path = self._path(PIPELINE_FILE)
        document = read_json(path)
        if document is None:
            return None
        try:
            if document["format"] != FORMAT:
                raise ValueError(f"format {document['format']}")
            return Kept(
                document["id"],
                from_canonical(document["pipeline"], path),
                document["parallelism"],
                document["columns"],
                document["versions"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointRefused(
                f"{path} cannot be read ({error}): another version of Ottla wrote it, or somebody changed it"
            ) from error

    def take(self, pipeline: Pipeline) -> Kept | None:
        """What an earlier run settled. Raises CheckpointRefused where the pipeline cannot go on from there."""
        kept = self.load()
        if kept is None:
            return None
        if faults := compare(kept.pipeline, pipeline):
            raise CheckpointRefused("\n".join(f"checkpoint {self.directory}: {fault}" for fault in faults))
        if _computation(kept.pipeline) != _computation(pipeline):
            for sink in kept.pipeline.sinks:
                if (epoch := self.unfinished(sink.name)) is not None:
                    raise CheckpointRefused(
                        f"checkpoint {self.directory}: epoch {epoch} of sink {sink.name} has begun and not ended, and "
                        "the pipeline was changed since. Let the pipeline as it was finish it (`ottla pipeline run "
                        "--once`), then run the new one."
                    )
        return kept

    def keep(
        self, pipeline: Pipeline, parallelism: Mapping[str, int], columns: Mapping[str, str], engine: Mapping[str, str]
    ) -> Kept:
        """Write down what this run goes by."""
        before = self.load()
        kept = Kept(
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
        """The epoch that Spark has begun and not ended."""
        begun, ended = (self._epochs(sink, log) for log in ("offsets", "commits"))
        return max(begun) if begun and max(begun) not in ended else None

    def _epochs(self, sink: str, log: str) -> set[int]:
        try:
            names = os.listdir(os.path.join(self.sink(sink), log))
        except FileNotFoundError:
            return set()
        return {int(name) for name in names if _EPOCH.fullmatch(name)}

    def own(self, run: str) -> None:
        """Take the checkpoint over from whatever run had it."""
        os.makedirs(self.directory, exist_ok=True)
        write_json(self._path(OWNER_FILE), {"run": run, "pid": os.getpid(), "host": platform.node()})
        self._remove(STOP_FILE)

    def check_owner(self, run: str) -> None:
        """Raises Fenced."""
        owner = read_json(self._path(OWNER_FILE)) or {}
        if owner.get("run") != run:
            raise Fenced(
                f"another run of the pipeline took over (process {owner.get('pid')} on {owner.get('host')}); "
                "this one stops"
            )

    def ask_to_stop(self) -> None:
        write_json(self._path(STOP_FILE), {})

    @property
    def stop_asked(self) -> bool:
        return os.path.exists(self._path(STOP_FILE))

    def status(self) -> "Status | None":
        document = read_json(self._path(STATUS_FILE))
        return None if document is None else Status.read(document)

    def tell(self, status: "Status") -> None:
        """For the owner only: what a run that was fenced has to say would hide how the other gets on.

        A disk that is full, or gone, costs the status and not the run.
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
    """How a sink's query gets on. Counts are of this run."""

    epoch: int = -1
    """The last that was finished."""
    records_read: int = 0
    records_per_second: float = 0.0
    rows_written: int = 0
    dead_letters: int = 0
    late_rows: int = 0
    """Dropped because the watermark had passed them; counted as the engine does, after it has grouped what it can."""
    batch_ms: list[int] = field(default_factory=list)
    """How long the latest epochs took, the newest last."""
    epochs_skipped: int = 0
    """Tasks' epochs that an earlier attempt had written already."""
    restarts: int = 0
    error: str = ""


@dataclass
class Status:
    pipeline: str
    run: str
    hash: str
    state: str
    """starting, running, stopped (somebody asked), finished (--once, or a replay), failed."""
    pid: int
    pid_started: float
    """When the process began: numbers of processes are used again."""
    host: str
    started_ms: int
    updated_ms: int = 0
    lag_records: int | None = None
    lag_ms: int | None = None
    reason: str = ""
    sinks: dict[str, SinkStatus] = field(default_factory=dict)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "Status":
        """Fields of another version are left out."""
        known = {name: value for name, value in document.items() if name in cls.__dataclass_fields__}
        sinks = {
            name: SinkStatus(**{key: one for key, one in sink.items() if key in SinkStatus.__dataclass_fields__})
            for name, sink in known.pop("sinks", {}).items()
        }
        return cls(**known, sinks=sinks)


def _computation(pipeline: Pipeline) -> str:
    """What is computed, wherever the cluster and the checkpoint are, and however the results travel to a topic."""
    sinks = (
        replace(sink, codec=Codec.NONE, batch_bytes=0, linger_ms=0, transaction_timeout_ms=0)
        if isinstance(sink, TopicSink)
        else sink
        for sink in pipeline.sinks
    )
    return canonical(replace(pipeline, bootstrap="", checkpoint="", sinks=tuple(sinks)))


def read_json(path: str) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8") as file:
            document: dict[str, Any] = json.load(file)
            return document
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CheckpointRefused(f"{path} cannot be read ({error}): somebody changed it") from error


def write_json(path: str, document: Mapping[str, Any]) -> None:
    """Whole or not at all, and durably: what it says is relied upon after a crash."""
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
