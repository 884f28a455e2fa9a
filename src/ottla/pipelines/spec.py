"""What a pipeline is: frozen values that say what flows from where to where, and nothing of how it is run.

Rule 1: a spec is whole. Defaults are filled in, a schema kept in a file is read, every step knows its inputs: who runs
        it needs no other file but the code that it refers to.
Rule 2: two ways of writing one pipeline, a TOML file and Python, give equal specs.
Rule 3: durations are milliseconds and sizes bytes; names of fields say so, names of keys in a file need not.
"""

from dataclasses import dataclass
from enum import StrEnum

from ottla.pipelines.columns import Column


class Delivery(StrEnum):
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class Isolation(StrEnum):
    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class DataLoss(StrEnum):
    """What happens when retention has removed records before they were read."""

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


class Frame(StrEnum):
    """What a Python function is given and gives back."""

    ARROW = "arrow"
    PANDAS = "pandas"


class TimeMode(StrEnum):
    """Which time the timers of a stateful step go by."""

    NONE = "none"
    PROCESSING = "processing"
    EVENT = "event"


class Codec(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


@dataclass(frozen=True)
class Schema:
    """The columns of what is parsed: written down, or found in a sample of records."""

    text: str = ""
    """A list of columns in SQL's words, an Avro schema, or a .proto file's text; empty where it is inferred."""
    sample_records: int = 0


@dataclass(frozen=True)
class Start:
    """Where a pipeline begins to read when it has no checkpoint yet: one of these."""

    place: str = "earliest"
    """`earliest` or `latest`; empty where it is a time or offsets."""
    time_ms: int | None = None
    offsets: tuple[tuple[str, int, int], ...] = ()
    """(topic, partition, offset); partitions that are not named begin at the earliest."""


@dataclass(frozen=True)
class TopicSource:
    name: str
    topics: tuple[str, ...]
    pattern: str
    """RE2, over whole names; empty where topics are named."""
    parse: Parse
    schema: Schema | None
    message: str
    """The message's full name in a protobuf schema."""
    start: Start
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
    """Events of `input` older than the latest `column` less `delay_ms` come too late."""

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
    frame: Frame
    schema: tuple[Column, ...]


@dataclass(frozen=True)
class Dedup:
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Stateful:
    processor: str
    """`module:name` of the class."""
    keys: tuple[str, ...]
    schema: tuple[Column, ...]
    time: TimeMode


@dataclass(frozen=True)
class Ml:
    """Either a model that was kept, which adds its columns, or a function that trains one and gives its results."""

    model: str
    train: str
    schema: tuple[Column, ...]


@dataclass(frozen=True)
class MarkOnly:
    """A step that does nothing but set watermarks."""


Work = Sql | PythonFunction | Dedup | Stateful | Ml | MarkOnly


@dataclass(frozen=True)
class Step:
    name: str
    inputs: tuple[str, ...]
    work: Work
    watermarks: tuple[Watermark, ...]


@dataclass(frozen=True)
class TopicSink:
    name: str
    input: str
    topic: str
    key: tuple[str, ...]
    headers: tuple[str, ...]
    """Columns that become headers of the record instead of part of its value."""
    serialise: Parse
    schema: Schema | None
    message: str
    partitioner: str
    codec: Codec
    batch_bytes: int
    linger_ms: int
    parallelism: int | None
    """How many tasks write, each with a transactional id; without it the first run settles it."""
    transaction_timeout_ms: int


@dataclass(frozen=True)
class ParquetSink:
    name: str
    input: str
    path: str
    partition_by: tuple[str, ...]


@dataclass(frozen=True)
class DeltaSink:
    name: str
    input: str
    path: str
    partition_by: tuple[str, ...]
    upsert: tuple[str, ...]


@dataclass(frozen=True)
class PostgresSink:
    name: str
    input: str
    url: str
    table: str
    upsert: tuple[str, ...]
    password_variable: str


@dataclass(frozen=True)
class ConsoleSink:
    name: str
    input: str
    rows: int


Sink = TopicSink | ParquetSink | DeltaSink | PostgresSink | ConsoleSink


@dataclass(frozen=True)
class Errors:
    """What becomes of a record that cannot be parsed or that fails in a step. Without dead letters it stops the run."""

    dead_letter: str = ""
    max_rate: float = 0.01


@dataclass(frozen=True)
class Pipeline:
    name: str
    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]
    errors: Errors
    delivery: Delivery
    checkpoint: str
    bootstrap: str
