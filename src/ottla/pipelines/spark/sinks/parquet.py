"""Rows into Parquet files that any reader finds where they belong, each epoch once.

Rule 1: an epoch is written into a directory that readers pass over (its name begins with _) and no other run writes
        to. When it is whole, a list of its files and where they go is kept; then they are renamed one by one; then the
        list becomes the manifest.
Rule 2: an epoch with a manifest is done. One with a list is finished by renaming what is still to be renamed: nothing
        is computed again. Any other is written anew, if the one before it is done; what earlier runs had of it is
        deleted when a run begins.
Rule 3: names of files hold the pipeline, the checkpoint and the epoch, so that no two epochs write one file.

Who must see an epoch whole or not at all reads the manifests; who reads the files sees a part of it for a moment.
"""

import json
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from ottla.pipelines.paths import resolved
from ottla.pipelines.spark.sinks.writing import Outcome, Run, is_due
from ottla.pipelines.spec import ParquetSink

_OWN: Final = "_ottla"
_STAGED: Final = ".staged"
_ID_CHARACTERS: Final = 8


class ParquetWriter:
    def __init__(self, sink: ParquetSink, run: Run, spark: SparkSession) -> None:
        self._sink = sink
        self._target = resolved(run.directory, sink.path)
        self._run = run.name
        self._stem = f"{run.identity.group_id}.{sink.name}-{run.checkpoint_id[:_ID_CHARACTERS]}"
        self._own = f"{self._target}/{_OWN}/{self._stem}"
        self._files = _Files(spark, self._target)

    def begin(self) -> None:
        """The checkpoint's owner is the one who writes. An older run that still does finds nothing to go on with."""
        names = self._files.names(self._own)
        for name in names:
            epoch = name.partition(".")[0]
            if name.endswith(_STAGED) and (f"{epoch}.moving" not in names or f"{epoch}.json" in names):
                self._files.delete(f"{self._own}/{name}")

    def write(self, rows: DataFrame, epoch: int) -> Outcome:
        manifest, moving = self._manifest(epoch), f"{self._own}/{epoch}.moving"
        if not is_due(self._sink.name, epoch, self._written(epoch), self._own):
            return Outcome(0, skipped=1)
        if not self._files.exists(moving):
            name = f"{epoch}.{self._run}{_STAGED}"
            staged = f"{self._own}/{name}"
            self._stage(rows, staged)
            count = rows.sparkSession.read.schema(rows.schema).parquet(staged).count()
            moves = self._moves(staged, epoch) if count else []  # Spark writes a file for no rows, too.
            listed = json.dumps({"rows": count, "staged": name, "moves": moves})
            self._files.write_first(moving, listed, f"{moving}.{self._run}")
        listed = json.loads(self._files.read(moving))
        staged = f"{self._own}/{listed['staged']}"
        for source, target in listed["moves"]:
            self._files.move(f"{staged}/{source}", f"{self._target}/{target}")
        self._files.move(moving, manifest)
        self._files.delete(staged)
        return Outcome(listed["rows"])

    def _written(self, epoch: int) -> int:
        """The last epoch that has a manifest, if that is a neighbour of `epoch` or itself."""
        return next((near for near in (epoch + 1, epoch, epoch - 1) if self._files.exists(self._manifest(near))), -1)

    def _manifest(self, epoch: int) -> str:
        return f"{self._own}/{epoch}.json"

    def _stage(self, rows: DataFrame, staged: str) -> None:
        writer = rows.write.mode("overwrite")
        if self._sink.partition_by:
            writer = writer.partitionBy(*self._sink.partition_by)
        writer.parquet(staged)

    def _moves(self, staged: str, epoch: int) -> list[tuple[str, str]]:
        """From where in the staging directory to where under the target, for every file."""
        moves = []
        found = [path for path in self._files.under(staged) if path.endswith(".parquet")]
        for number, path in enumerate(sorted(found)):
            directory = path.rpartition("/")[0]
            name = f"{self._stem}-{epoch:010d}-{number:05d}.parquet"
            moves.append((path, f"{directory}/{name}" if directory else name))
        return moves


class _Files:
    """The file system of an address, local or not: Spark's own, which knows the addresses that Spark knows."""

    def __init__(self, spark: SparkSession, address: str) -> None:
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
        """Of what is in it; nothing where it is not there."""
        if not self.exists(directory):
            return set()
        return {status.getPath().getName() for status in self._system.listStatus(self._path(directory))}

    def under(self, directory: str) -> list[str]:
        """The files below it, as seen from there."""
        top = self._system.getFileStatus(self._path(directory)).getPath().toString() + "/"
        found = []
        files = self._system.listFiles(self._path(directory), True)
        while files.hasNext():
            found.append(files.next().getPath().toString().removeprefix(top))
        return found

    def move(self, source: str, target: str) -> None:
        """Done already where the source is gone and the target there."""
        if not self.exists(source) and self.exists(target):
            return
        self._system.mkdirs(self._path(target).getParent())
        if not self._system.rename(self._path(source), self._path(target)):
            raise OSError(f"{source} cannot be renamed to {target}")

    def write_first(self, path: str, text: str, temporary: str) -> None:
        """It appears whole, unless it is there: an older run that was not dead came first, and its word counts."""
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
