"""Every key of a pipeline document, declared once. Reading, writing, checks and the documentation's tables use it.

A table of the document has one of several forms. A key that only one form has decides which: a source with `topic`
reads topics, one with `files` reads files. The forms of sinks are in `sink/`, one module each.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

from ottla.pipelines.spec import model
from ottla.pipelines.spec.problems import Unfit
from ottla.pipelines.spec.schemas import SCHEMA
from ottla.pipelines.spec.values import (
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
    ValueKind,
    choice,
    matching,
    text,
    whole,
)


@dataclass(frozen=True)
class TableKey:
    name: str
    kind: ValueKind[Any]
    doc: str
    default: Any = None
    required: bool = False
    field: str = ""
    """The attribute's name in the spec, where that differs."""
    default_doc: str = ""
    """The default in words, where there is more to say than its value."""
    is_target: bool = False
    """Of a sink: where it writes. A checkpoint does not survive a change of it."""
    exclusive: bool = False
    """Of a sink: no other sink of the pipeline may have the same target."""
    routes_rows: bool = False
    """Of a sink: decides which task writes a row. A checkpoint does not survive a change of it."""
    is_transport: bool = False
    """Of a sink: changes how results travel, but not what they are. It may change at any time."""

    def but(self, **changes: Any) -> "TableKey":
        return replace(self, **changes)

    @property
    def attribute(self) -> str:
        return self.field or self.name


@dataclass(frozen=True)
class TableForm:
    title: str
    chosen_by: tuple[str, ...]
    keys: tuple[TableKey, ...]
    type: Any = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(key.name for key in self.keys)


def _read_bootstrap(value: object) -> str:
    if not isinstance(value, str):
        raise Unfit(BOOTSTRAP.expects)
    from ottla.rpc.addresses import parse_bootstrap  # Imported here, because only pipelines with this key need it.

    try:
        return ",".join(str(address) for address in parse_bootstrap(value))
    except ValueError as error:
        raise Unfit(BOOTSTRAP.expects, str(error)) from None


BOOTSTRAP: Final = ValueKind("HOST:PORT, several separated by commas", _read_bootstrap, str)
PIPELINE_NAME: Final = matching(
    "1 to 100 letters, digits, underscores and hyphens, the first a letter or digit", r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}"
)
NODE_NAME: Final = matching(
    "up to 100 ASCII letters, digits and underscores, the first not a digit: queries use it",
    r"[A-Za-z_][A-Za-z0-9_]{0,99}",
)
TOPIC_PARSE: Final = choice(
    (model.Parse.JSON, model.Parse.AVRO, model.Parse.PROTOBUF, model.Parse.TEXT, model.Parse.BYTES)
)
FILES_PARSE: Final = choice((model.Parse.JSON, model.Parse.CSV, model.Parse.PARQUET, model.Parse.TEXT))
MESSAGE: Final = matching("a message's full name, as in shop.Order", r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")

PIPELINE: Final = TableForm(
    "a pipeline",
    (),
    (
        TableKey(
            "name", PIPELINE_NAME, "Its identity: the group `pipeline.NAME` and its transactional ids.", required=True
        ),
        TableKey(
            "bootstrap",
            BOOTSTRAP,
            "A broker of the cluster, or several.",
            "",
            default_doc="`$OTTLA_BOOTSTRAP`, else `127.0.0.1:9092`",
        ),
        TableKey(
            "delivery",
            choice(model.DeliveryGuarantee),
            "How often a result arrives when something fails on the way.",
            model.DeliveryGuarantee.EXACTLY_ONCE,
        ),
        TableKey("checkpoint", LOCAL_PATH, "Where progress and state are kept.", "", default_doc="`checkpoints/NAME`"),
    ),
)
ERRORS: Final = TableForm(
    "errors",
    (),
    (
        TableKey(
            "dead_letter", TOPIC, "The topic for records that fail. Without it such a record stops the pipeline.", ""
        ),
        TableKey("max_rate", SHARE, "The share of records that may fail before the pipeline stops.", 0.01),
    ),
    model.Errors,
)
SCHEMA_KEY: Final = TableKey("schema", SCHEMA, "The columns, or how to find them.", default_doc="see below")
MESSAGE_KEY: Final = TableKey("message", MESSAGE, "With protobuf: which message of the schema.", "")
TOPIC_SOURCE: Final = TableForm(
    "a topic source",
    ("topic", "pattern"),
    (
        TableKey("topic", TOPICS, "The topic to read, or a list of them.", (), field="topics"),
        TableKey(
            "pattern",
            PATTERN,
            "Instead of `topic`: every topic whose whole name matches, also topics created later.",
            "",
        ),
        TableKey("parse", TOPIC_PARSE, "What the values are.", required=True),
        SCHEMA_KEY,
        MESSAGE_KEY,
        TableKey("start", START, "Where to begin when there is no checkpoint yet.", model.StartPosition()),
        TableKey(
            "isolation",
            choice(model.Isolation),
            "Whether records of open and aborted transactions are read.",
            model.Isolation.READ_COMMITTED,
        ),
        TableKey("table", FLAG, "Read the topic as a table: the latest value of each key.", False),
        TableKey(
            "max_records_per_batch",
            whole(),
            "The most records in a batch.",
            1_000_000,
            field="records_per_batch_max",
        ),
        TableKey(
            "max_records_per_second",
            whole(),
            "The most records read in a second.",
            field="records_per_second_max",
            default_doc="no limit",
        ),
        TableKey(
            "min_partitions",
            whole(1, 100_000),
            "Split partitions so that at least this many tasks read.",
            field="partitions_min",
            default_doc="a task for each partition",
        ),
        TableKey(
            "on_data_loss",
            choice(model.DataLoss),
            "What to do when retention removed records before they were read.",
            model.DataLoss.FAIL,
        ),
    ),
    model.TopicSource,
)
FILES_SOURCE: Final = TableForm(
    "a files source",
    ("files",),
    (
        TableKey(
            "files",
            PATH,
            "A directory or a pattern such as `in/*.json`; files added later are read too.",
            required=True,
            field="path",
        ),
        TableKey("parse", FILES_PARSE, "What the files are.", required=True),
        SCHEMA_KEY,
        TableKey("header", FLAG, "With csv: the first line has the columns' names.", False),
        TableKey("max_files_per_batch", whole(), "The most files in a batch.", 1_000, field="files_per_batch_max"),
        TableKey(
            "max_bytes_per_batch",
            SIZE,
            "The largest total size of a batch's files.",
            field="bytes_per_batch_max",
            default_doc="no limit",
        ),
    ),
    model.FilesSource,
)
SOURCES: Final = (TOPIC_SOURCE, FILES_SOURCE)

_STEP_NAME: Final = TableKey(
    "name", NODE_NAME, "The name that other steps and sinks use.", default_doc="`step_N`, N its place"
)
_INPUT: Final = TableKey(
    "input", text("the name of a source or a step"), "The source or step it reads.", default_doc="the step before"
)
_WATERMARK: Final = TableKey(
    "watermark", ValueKind("", lambda value: value, lambda value: value), "See below; a table, or a list of them."
)
_RESULT: Final = TableKey("schema", COLUMNS, "The columns of the result.", required=True)
SQL: Final = TableForm(
    "an SQL step",
    ("sql",),
    (
        TableKey("sql", text("a query"), "A query over sources and other steps.", required=True, field="query"),
        _STEP_NAME,
        _WATERMARK,
    ),
    model.Sql,
)
PYTHON: Final = TableForm(
    "a Python step",
    ("python",),
    (
        TableKey("python", REFERENCE, "The function, given an iterator of batches.", required=True, field="function"),
        TableKey("frame", choice(model.FrameType), "What a batch is.", model.FrameType.ARROW),
        _RESULT,
        _STEP_NAME,
        _INPUT,
        _WATERMARK,
    ),
    model.PythonFunction,
)
DEDUP: Final = TableForm(
    "a dedup step",
    ("dedup",),
    (
        TableKey("dedup", COLUMN_NAMES, "Rows equal in these columns count once.", required=True, field="columns"),
        _STEP_NAME,
        _INPUT,
        _WATERMARK,
    ),
    model.Dedup,
)
STATEFUL: Final = TableForm(
    "a stateful step",
    ("stateful",),
    (
        TableKey("stateful", REFERENCE, "The class of the processor.", required=True, field="processor"),
        TableKey("keys", COLUMN_NAMES, "Rows equal in these columns share a state.", required=True),
        _RESULT,
        TableKey("time", choice(model.TimeMode), "The time that its timers use.", model.TimeMode.NONE),
        _STEP_NAME,
        _INPUT,
        _WATERMARK,
    ),
    model.Stateful,
)
ML: Final = TableForm(
    "an ML step",
    ("model", "train"),
    (
        TableKey("model", PATH, "A model that Spark ML has saved; it adds its columns to the rows.", ""),
        TableKey("train", REFERENCE, "Instead of `model`: a function that trains on the rows and gives results.", ""),
        _RESULT.but(required=False, default=(), doc="With `train`: the columns of the result."),
        _STEP_NAME,
        _INPUT,
        _WATERMARK,
    ),
    model.Ml,
)
MARK_ONLY: Final = TableForm("a watermark step", ("watermark",), (_WATERMARK, _STEP_NAME, _INPUT), model.MarkOnly)
STEPS: Final = (SQL, PYTHON, DEDUP, STATEFUL, ML, MARK_ONLY)
WATERMARK: Final = TableForm(
    "a watermark",
    (),
    (
        TableKey("column", COLUMN, "The column with the event's time.", required=True),
        TableKey("delay", DURATION, "How late an event may arrive.", required=True, field="delay_ms"),
        _INPUT.but(doc="The input that has the column.", default_doc="the step's input, if it has only one"),
    ),
    model.Watermark,
)

SINK_INPUT: Final = _INPUT.but(default_doc="the last step")
PARTITION_BY: Final = TableKey("partition_by", COLUMN_NAMES, "Columns that become directories.", ())
UPSERT: Final = TableKey(
    "upsert", COLUMN_NAMES, "A row replaces the row that is equal in these columns. Without it rows are added.", ()
)
