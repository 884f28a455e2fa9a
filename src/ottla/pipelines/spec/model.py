"""The spec of a pipeline: frozen values that say what is read, computed and written, and nothing about how it runs.

Rule 1: a spec is complete. Defaults are filled in, a schema in a file is read, every step knows its inputs. To run it
        takes no other file than the code that it refers to.
Rule 2: a TOML file and Python code that write the same pipeline give equal specs.
Rule 3: durations are in milliseconds and sizes in bytes. Field names say so; keys of a document need not.
"""

from dataclasses import dataclass
from enum import StrEnum

from ottla.pipelines.spec.columns import SqlColumn


class DeliveryGuarantee(StrEnum):
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class Isolation(StrEnum):
    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class DataLoss(StrEnum):
    """What the pipeline does when retention has removed records before they were read."""

    FAIL = "fail"
    WARN = "warn"


class Parse(StrEnum):
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    TEXT = "text"
    BYTES = "bytes"
    CSV = "csv"
    PARQUET = "parquet"


class FrameType(StrEnum):
    """The type of the batches that a Python function takes and returns."""

    ARROW = "arrow"
    PANDAS = "pandas"


class TimeMode(StrEnum):
    """The time that timers of a stateful step use."""

    NONE = "none"
    PROCESSING = "processing"
    EVENT = "event"


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


@dataclass(frozen=True)
class Schema:
    """The columns of parsed values: declared, or inferred from a sample of records."""

    text: str = ""
    """Columns declared in SQL, an Avro schema, or the text of a .proto file; empty if it is to be inferred."""
    sample_records: int = 0


@dataclass(frozen=True)
class StartPosition:
    """Where a pipeline without a checkpoint begins to read: a place, a time or offsets."""

    place: str = "earliest"
    """`earliest` or `latest`; empty if a time or offsets are given."""
    time_ms: int | None = None
    offsets: tuple[tuple[str, int, int], ...] = ()
    """(topic, partition, offset); partitions that are not named begin at the earliest offset."""


@dataclass(frozen=True)
class TopicSource:
    name: str
    topics: tuple[str, ...]
    pattern: str
    """An RE2 pattern for whole topic names; empty if topics are named."""
    parse: Parse
    schema: Schema | None
    message: str
    """The message's full name in a protobuf schema."""
    start: StartPosition
    isolation: Isolation
    table: bool
    """Read as a table: the latest value of each key."""
    records_per_batch_max: int
    records_per_second_max: int | None
    partitions_min: int | None
    on_data_loss: DataLoss


@dataclass(frozen=True)
class FilesSource:
    name: str
    path: str
    parse: Parse
    schema: Schema | None
    header: bool
    files_per_batch_max: int
    bytes_per_batch_max: int | None


Source = TopicSource | FilesSource


@dataclass(frozen=True)
class Watermark:
    """Events of `input` that are more than `delay_ms` older than the latest `column` are late and dropped."""

    input: str
    column: str
    delay_ms: int


@dataclass(frozen=True)
class Sql:
    query: str


@dataclass(frozen=True)
class PythonFunction:
    function: str
    """`module:name`."""
    frame: FrameType
    schema: tuple[SqlColumn, ...]


@dataclass(frozen=True)
class Dedup:
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Stateful:
    processor: str
    """`module:name` of the class."""
    keys: tuple[str, ...]
    schema: tuple[SqlColumn, ...]
    time: TimeMode


@dataclass(frozen=True)
class Ml:
    """Either the path of a saved model, which adds its columns, or a function that trains and returns results."""

    model: str
    train: str
    schema: tuple[SqlColumn, ...]


@dataclass(frozen=True)
class MarkOnly:
    """A step that only sets watermarks."""


Work = Sql | PythonFunction | Dedup | Stateful | Ml | MarkOnly


@dataclass(frozen=True)
class Step:
    name: str
    inputs: tuple[str, ...]
    work: Work
    watermarks: tuple[Watermark, ...]


@dataclass(frozen=True)
class Sink:
    """The base of all sinks. Each kind of sink has a module in `sink/`; `spec/sinks` lists them."""

    name: str
    input: str


@dataclass(frozen=True)
class TopicSink(Sink):
    """A sink that writes records to a topic. It is declared here and not in `sink/`, because dead letters and the plan
    of a run use it too."""

    topic: str
    key: tuple[str, ...]
    headers: tuple[str, ...]
    """Columns that become headers of the record instead of part of its value."""
    serialise: Parse
    schema: Schema | None
    message: str
    partitioner: str
    codec: Compression
    batch_bytes: int
    linger_ms: int
    parallelism: int | None
    """How many tasks write, each with its own transactional id. None: the first run decides."""
    transaction_timeout_ms: int


@dataclass(frozen=True)
class Errors:
    """What happens to a record that cannot be parsed or fails in a step. Without `dead_letter` it stops the run."""

    dead_letter: str = ""
    max_rate: float = 0.01


@dataclass(frozen=True)
class Pipeline:
    name: str
    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]
    errors: Errors
    delivery: DeliveryGuarantee
    checkpoint: str
    bootstrap: str
