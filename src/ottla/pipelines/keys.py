"""Every key of a pipeline, declared once: reading, writing, checking and the documentation's tables follow from it.

A table of a document is one of several forms, told apart by a key that only this form has: a source with `topic` reads
topics, one with `files` reads files.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

from ottla.pipelines import spec
from ottla.pipelines.postgres_url import POSTGRES_URL
from ottla.pipelines.problems import Unfit
from ottla.pipelines.schemas import SCHEMA
from ottla.pipelines.values import (
    COLUMN,
    COLUMN_NAMES,
    COLUMNS,
    DURATION,
    FLAG,
    LOCAL_PATH,
    PATH,
    PATTERN,
    REFERENCE,
    SHARE,
    SIZE,
    START,
    TOPIC,
    TOPICS,
    Kind,
    choice,
    either,
    matching,
    text,
    whole,
)

MINUTE: Final = 60_000
KiB: Final = 1024


@dataclass(frozen=True)
class Key:
    name: str
    kind: Kind[Any]
    doc: str
    default: Any = None
    required: bool = False
    field: str = ""
    """What the spec calls it, where that differs."""
    default_doc: str = ""
    """The default in words, where there is more to say than its value."""

    @property
    def attribute(self) -> str:
        return self.field or self.name


@dataclass(frozen=True)
class Form:
    title: str
    chosen_by: tuple[str, ...]
    keys: tuple[Key, ...]
    type: Any = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(key.name for key in self.keys)


def _read_bootstrap(value: object) -> str:
    if not isinstance(value, str):
        raise Unfit(BOOTSTRAP.expects)
    from ottla.client.core.addresses import parse_bootstrap  # Brings the whole client: only for those who need it.

    try:
        return ",".join(str(address) for address in parse_bootstrap(value))
    except ValueError as error:
        raise Unfit(BOOTSTRAP.expects, str(error)) from None


def _read_true(value: object) -> bool:
    if value is not True:
        raise Unfit("true", "expected true; leave the sink out to do without it")
    return True


BOOTSTRAP: Final = Kind("HOST:PORT, several separated by commas", _read_bootstrap, str)
PIPELINE_NAME: Final = matching(
    "1 to 100 letters, digits, underscores and hyphens, the first a letter or digit", r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}"
)
NODE_NAME: Final = matching(
    "up to 100 letters, digits and underscores of ASCII, the first no digit: queries use it",
    r"[A-Za-z_][A-Za-z0-9_]{0,99}",
)
TOPIC_PARSE: Final = choice((spec.Parse.JSON, spec.Parse.AVRO, spec.Parse.PROTOBUF, spec.Parse.TEXT, spec.Parse.BYTES))
FILES_PARSE: Final = choice((spec.Parse.JSON, spec.Parse.CSV, spec.Parse.PARQUET, spec.Parse.TEXT))
MESSAGE: Final = matching("a message's full name, as in shop.Order", r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
PARTITIONER: Final = either(
    ("default", "round-robin"), REFERENCE, "default, round-robin, or a function of yours as MODULE:NAME"
)
VARIABLE: Final = matching("the name of an environment variable", r"[A-Za-z_][A-Za-z0-9_]*")
TABLE: Final = matching("a table's name, as in orders or shop.orders", r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")

PIPELINE: Final = Form(
    "a pipeline",
    (),
    (
        Key("name", PIPELINE_NAME, "Its identity: the group `pipeline.NAME` and its transactional ids.", required=True),
        Key(
            "bootstrap",
            BOOTSTRAP,
            "A broker of the cluster, or several.",
            "",
            default_doc="`$OTTLA_BOOTSTRAP`, else `127.0.0.1:9092`",
        ),
        Key(
            "delivery",
            choice(spec.Delivery),
            "How often a result arrives when something fails on the way.",
            spec.Delivery.EXACTLY_ONCE,
        ),
        Key("checkpoint", LOCAL_PATH, "Where progress and state are kept.", "", default_doc="`checkpoints/NAME`"),
    ),
)
ERRORS: Final = Form(
    "errors",
    (),
    (
        Key("dead_letter", TOPIC, "The topic for records that fail. Without it such a record stops the pipeline.", ""),
        Key("max_rate", SHARE, "The share of records that may fail before the pipeline stops.", 0.01),
    ),
    spec.Errors,
)
_SCHEMA: Final = Key("schema", SCHEMA, "The columns, or how to find them.", default_doc="see below")
_MESSAGE: Final = Key("message", MESSAGE, "With protobuf: which message of the schema.", "")
TOPIC_SOURCE: Final = Form(
    "a topic source",
    ("topic", "pattern"),
    (
        Key("topic", TOPICS, "The topic to read, or a list of them.", (), field="topics"),
        Key("pattern", PATTERN, "Instead of `topic`: every topic whose whole name fits, also later ones.", ""),
        Key("parse", TOPIC_PARSE, "What the values are.", required=True),
        _SCHEMA,
        _MESSAGE,
        Key("start", START, "Where to begin when there is no checkpoint yet.", spec.Start()),
        Key(
            "isolation",
            choice(spec.Isolation),
            "Whether records of open and aborted transactions are read.",
            spec.Isolation.READ_COMMITTED,
        ),
        Key("table", FLAG, "Read it as a table: the latest value of each key.", False),
        Key(
            "max_records_per_batch",
            whole(),
            "How many records a batch takes at most.",
            1_000_000,
            field="records_per_batch_max",
        ),
        Key(
            "max_records_per_second",
            whole(),
            "How many records are read in a second at most.",
            field="records_per_second_max",
            default_doc="no limit",
        ),
        Key(
            "min_partitions",
            whole(1, 100_000),
            "Split partitions so that at least so many tasks read.",
            field="partitions_min",
            default_doc="a task for each partition",
        ),
        Key(
            "on_data_loss",
            choice(spec.DataLoss),
            "When retention removed records before they were read.",
            spec.DataLoss.FAIL,
        ),
    ),
    spec.TopicSource,
)
FILES_SOURCE: Final = Form(
    "a files source",
    ("files",),
    (
        Key(
            "files",
            PATH,
            "A directory or a pattern such as `in/*.json`; new files count too.",
            required=True,
            field="path",
        ),
        Key("parse", FILES_PARSE, "What the files are.", required=True),
        _SCHEMA,
        Key("header", FLAG, "With csv: the first line has the columns' names.", False),
        Key(
            "max_files_per_batch", whole(), "How many files a batch takes at most.", 1_000, field="files_per_batch_max"
        ),
        Key(
            "max_bytes_per_batch",
            SIZE,
            "How large the files of a batch are together at most.",
            field="bytes_per_batch_max",
            default_doc="no limit",
        ),
    ),
    spec.FilesSource,
)
SOURCES: Final = (TOPIC_SOURCE, FILES_SOURCE)

_STEP_NAME: Final = Key("name", NODE_NAME, "What other steps and sinks call it.", default_doc="`step_N`, N its place")
_INPUT: Final = Key(
    "input", text("the name of a source or a step"), "The source or step it reads.", default_doc="the step before"
)
_WATERMARK: Final = Key(
    "watermark", Kind("", lambda value: value, lambda value: value), "See below; a table, or a list of them."
)
_RESULT: Final = Key("schema", COLUMNS, "The columns of the result.", required=True)
SQL: Final = Form(
    "an SQL step",
    ("sql",),
    (
        Key("sql", text("a query"), "A query over sources and other steps.", required=True, field="query"),
        _STEP_NAME,
        _WATERMARK,
    ),
    spec.Sql,
)
PYTHON: Final = Form(
    "a Python step",
    ("python",),
    (
        Key("python", REFERENCE, "The function, given an iterator of batches.", required=True, field="function"),
        Key("frame", choice(spec.Frame), "What a batch is.", spec.Frame.ARROW),
        _RESULT,
        _STEP_NAME,
        _INPUT,
        _WATERMARK,
    ),
    spec.PythonFunction,
)
DEDUP: Final = Form(
    "a dedup step",
    ("dedup",),
    (
        Key("dedup", COLUMN_NAMES, "Rows equal in these columns count once.", required=True, field="columns"),
        _STEP_NAME,
        _INPUT,
        _WATERMARK,
    ),
    spec.Dedup,
)
STATEFUL: Final = Form(
    "a stateful step",
    ("stateful",),
    (
        Key("stateful", REFERENCE, "The class of the processor.", required=True, field="processor"),
        Key("keys", COLUMN_NAMES, "Rows equal in these columns share a state.", required=True),
        _RESULT,
        Key("time", choice(spec.TimeMode), "Which time its timers go by.", spec.TimeMode.NONE),
        _STEP_NAME,
        _INPUT,
        _WATERMARK,
    ),
    spec.Stateful,
)
ML: Final = Form(
    "an ML step",
    ("model", "train"),
    (
        Key("model", PATH, "A model that Spark ML has saved; it adds its columns to the rows.", ""),
        Key("train", REFERENCE, "Instead of `model`: a function that trains on the rows and gives results.", ""),
        replace(_RESULT, required=False, default=(), doc="With `train`: the columns of the result."),
        _STEP_NAME,
        _INPUT,
        _WATERMARK,
    ),
    spec.Ml,
)
MARK_ONLY: Final = Form("a watermark step", ("watermark",), (_WATERMARK, _STEP_NAME, _INPUT), spec.MarkOnly)
STEPS: Final = (SQL, PYTHON, DEDUP, STATEFUL, ML, MARK_ONLY)
WATERMARK: Final = Form(
    "a watermark",
    (),
    (
        Key("column", COLUMN, "The column with the event's time.", required=True),
        Key("delay", DURATION, "How late an event may come.", required=True, field="delay_ms"),
        replace(_INPUT, doc="Whose column it is.", default_doc="the step's input, if it has one alone"),
    ),
    spec.Watermark,
)

_SINK_INPUT: Final = replace(_INPUT, default_doc="the last step")
_PARTITION_BY: Final = Key("partition_by", COLUMN_NAMES, "Columns that become directories.", ())
_UPSERT: Final = Key(
    "upsert", COLUMN_NAMES, "A row replaces the one equal in these columns. Without it rows are added.", ()
)
TOPIC_SINK: Final = Form(
    "a topic sink",
    ("topic",),
    (
        Key("topic", TOPIC, "The topic to write.", required=True),
        _SINK_INPUT,
        Key("key", COLUMN_NAMES, "The column, or columns, of the record's key.", ()),
        Key("headers", COLUMN_NAMES, "Columns that become headers instead of part of the value.", ()),
        Key("serialise", TOPIC_PARSE, "What the values are.", spec.Parse.JSON),
        replace(_SCHEMA, default_doc="the columns of the input"),
        _MESSAGE,
        Key("partitioner", PARTITIONER, "Which partition a record goes to; `default` is Kafka's own.", "default"),
        Key("codec", choice(spec.Codec), "How batches are compressed.", spec.Codec.NONE),
        Key("batch_size", SIZE, "How large a batch grows.", 256 * KiB, field="batch_bytes"),
        Key("linger", DURATION, "How long a batch waits for more records.", 5, field="linger_ms"),
        Key(
            "parallelism",
            whole(1, 10_000),
            "How many tasks write, each with a transactional id.",
            default_doc="settled by the first run",
        ),
        Key(
            "transaction_timeout",
            DURATION,
            "Longer than the longest task takes; the cluster's `transaction.max.timeout.ms` allows it.",
            10 * MINUTE,
            field="transaction_timeout_ms",
        ),
    ),
    spec.TopicSink,
)
PARQUET_SINK: Final = Form(
    "a Parquet sink",
    ("parquet",),
    (Key("parquet", PATH, "The directory.", required=True, field="path"), _SINK_INPUT, _PARTITION_BY),
    spec.ParquetSink,
)
DELTA_SINK: Final = Form(
    "a Delta sink",
    ("delta",),
    (Key("delta", PATH, "The table's directory.", required=True, field="path"), _SINK_INPUT, _PARTITION_BY, _UPSERT),
    spec.DeltaSink,
)
POSTGRES_SINK: Final = Form(
    "a PostgreSQL sink",
    ("postgres",),
    (
        Key("postgres", POSTGRES_URL, "The database.", required=True, field="url"),
        Key("table", TABLE, "The table to write.", required=True),
        _SINK_INPUT,
        _UPSERT,
        Key(
            "password_variable",
            VARIABLE,
            "The environment variable that has the password; a file never does.",
            "",
            default_doc="no password",
        ),
    ),
    spec.PostgresSink,
)
CONSOLE_SINK: Final = Form(
    "a console sink",
    ("console",),
    (
        Key("console", Kind("true", _read_true, lambda value: value), "Print the rows.", required=True),
        _SINK_INPUT,
        Key("rows", whole(1, 10_000), "How many rows of a batch at most.", 20),
    ),
    spec.ConsoleSink,
)
SINKS: Final = (TOPIC_SINK, PARQUET_SINK, DELTA_SINK, POSTGRES_SINK, CONSOLE_SINK)
