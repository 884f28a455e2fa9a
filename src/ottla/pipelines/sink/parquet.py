"""The Parquet sink: writes each epoch once, as files in the sink's directory that any reader finds.

Rule 1: an epoch is written into a staging directory, which readers pass over (its name begins with _) and no other run
        writes to. Then a list of its files and their final names is written; then the files are renamed one by one;
        then the list is renamed to the manifest.
Rule 2: an epoch with a manifest is done. An epoch with a list is finished by the renames that are missing, and nothing
        is computed again. Any other epoch is written from the start, if the epoch before it is done. What earlier runs
        staged of it is deleted when a run begins.
Rule 3: file names hold the pipeline, the checkpoint and the epoch, so that no two epochs write the same file.

A reader of the files may see a part of an epoch for a moment. A reader that must not goes by the manifests.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.pipelines.sink.writing import EpochResult, RunContext, is_due
from ottla.pipelines.spec.keys import PARTITION_BY, SINK_INPUT, TableForm, TableKey
from ottla.pipelines.spec.model import Sink
from ottla.pipelines.spec.paths import resolved
from ottla.pipelines.spec.sinks import SinkKind, listed_columns
from ottla.pipelines.spec.values import PATH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OWN: Final = "_ottla"
_STAGED: Final = ".staged"
_ID_CHARACTERS: Final = 8


@dataclass(frozen=True)
class ParquetSink(Sink):
    path: str
    partition_by: tuple[str, ...]


class ParquetWriter:
    def __init__(self, sink: ParquetSink, run: RunContext, spark: "SparkSession") -> None:
        self._sink = sink
        self._target = resolved(run.directory, sink.path)
        self._run = run.name
        self._stem = f"{run.identity.group_id}.{sink.name}-{run.checkpoint_id[:_ID_CHARACTERS]}"
        self._own = f"{self._target}/{_OWN}/{self._stem}"
        self._files = _Files(spark, self._target)

    def begin(self) -> None:
        """Delete what older runs staged and did not finish. One that still runs then fails: its files are gone."""
        names = self._files.names(self._own)
        for name in names:
            epoch = name.partition(".")[0]
            if name.endswith(_STAGED) and (f"{epoch}.moving" not in names or f"{epoch}.json" in names):
                self._files.delete(f"{self._own}/{name}")

    def write(self, rows: "DataFrame", epoch: int) -> EpochResult:
        manifest, moving = self._manifest(epoch), f"{self._own}/{epoch}.moving"
        if not is_due(self._sink.name, epoch, self._written(epoch), self._own):
            return EpochResult(0, skipped=1)
        if not self._files.exists(moving):
            name = f"{epoch}.{self._run}{_STAGED}"
            staged = f"{self._own}/{name}"
            self._stage(rows, staged)
            count = rows.sparkSession.read.schema(rows.schema).parquet(staged).count()
            moves = self._moves(staged, epoch) if count else []  # Spark writes a file even for no rows.
            listed = json.dumps({"rows": count, "staged": name, "moves": moves})
            self._files.write_first(moving, listed, f"{moving}.{self._run}")
        listed = json.loads(self._files.read(moving))
        staged = f"{self._own}/{listed['staged']}"
        for source, target in listed["moves"]:
            self._files.move(f"{staged}/{source}", f"{self._target}/{target}")
        self._files.move(moving, manifest)
        self._files.delete(staged)
        return EpochResult(listed["rows"])

    def _written(self, epoch: int) -> int:
        """The last epoch that has a manifest, looked for only at `epoch` and the epochs beside it."""
        return next((near for near in (epoch + 1, epoch, epoch - 1) if self._files.exists(self._manifest(near))), -1)

    def _manifest(self, epoch: int) -> str:
        return f"{self._own}/{epoch}.json"

    def _stage(self, rows: "DataFrame", staged: str) -> None:
        writer = rows.write.mode("overwrite")
        if self._sink.partition_by:
            writer = writer.partitionBy(*self._sink.partition_by)
        writer.parquet(staged)

    def _moves(self, staged: str, epoch: int) -> list[tuple[str, str]]:
        """For every file its path in the staging directory and its path under the target."""
        moves = []
        found = [path for path in self._files.under(staged) if path.endswith(".parquet")]
        for number, path in enumerate(sorted(found)):
            directory = path.rpartition("/")[0]
            name = f"{self._stem}-{epoch:010d}-{number:05d}.parquet"
            moves.append((path, f"{directory}/{name}" if directory else name))
        return moves


class _Files:
    """The file system of a path, local or not, through Hadoop's classes: it takes every address that Spark takes."""

    def __init__(self, spark: "SparkSession", address: str) -> None:
        jvm: Any = spark._jvm
        self._path: Any = jvm.org.apache.hadoop.fs.Path
        self._text: Any = jvm.java.lang.String
        self._streams: Any = jvm.org.apache.hadoop.io.IOUtils
        self._bytes: Any = jvm.java.io.ByteArrayOutputStream
        configuration = spark.sparkContext._jsc.hadoopConfiguration()
        self._system: Any = self._path(address).getFileSystem(configuration)

    def exists(self, path: str) -> bool:
        return bool(self._system.exists(self._path(path)))

    def names(self, directory: str) -> set[str]:
        """The names of the directory's entries; none if there is no such directory."""
        if not self.exists(directory):
            return set()
        return {status.getPath().getName() for status in self._system.listStatus(self._path(directory))}

    def under(self, directory: str) -> list[str]:
        """The files below the directory, as paths relative to it."""
        top = self._system.getFileStatus(self._path(directory)).getPath().toString() + "/"
        found = []
        files = self._system.listFiles(self._path(directory), True)
        while files.hasNext():
            found.append(files.next().getPath().toString().removeprefix(top))
        return found

    def move(self, source: str, target: str) -> None:
        """Rename. An earlier attempt has done it if the source is gone and the target exists."""
        if not self.exists(source) and self.exists(target):
            return
        self._system.mkdirs(self._path(target).getParent())
        if not self._system.rename(self._path(source), self._path(target)):
            raise OSError(f"{source} cannot be renamed to {target}")

    def write_first(self, path: str, text: str, temporary: str) -> None:
        """Write a file that appears whole. If it exists already, an older run came first, and its file stays."""
        made = self._path(temporary)
        stream = self._system.create(made, True)
        stream.write(bytearray(text.encode()))
        stream.close()
        if self.exists(path):
            self.delete(temporary)
        elif not self._system.rename(made, self._path(path)):
            raise OSError(f"{path} cannot be written")

    def read(self, path: str) -> str:
        stream = self._system.open(self._path(path))
        bytes_read = self._bytes()
        self._streams.copyBytes(stream, bytes_read, 4096, True)
        return str(bytes_read.toString("UTF-8"))

    def delete(self, path: str) -> None:
        self._system.delete(self._path(path), True)


def _describe(sink: ParquetSink) -> Iterator[str]:
    yield f"parquet {sink.path}"
    yield from listed_columns("partitioned by", sink.partition_by)


KIND = SinkKind(
    form=TableForm(
        "a Parquet sink",
        ("parquet",),
        (
            TableKey("parquet", PATH, "The directory.", required=True, field="path", is_target=True, exclusive=True),
            SINK_INPUT,
            PARTITION_BY,
        ),
        ParquetSink,
    ),
    writer=ParquetWriter,
    describe=_describe,
    epoch_doc="a manifest in `_ottla/`, written when all files of the epoch have their names",
)
