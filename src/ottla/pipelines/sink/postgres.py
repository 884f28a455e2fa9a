"""The PostgreSQL sink: writes to a table; the epoch is a row of `ottla_epochs`, changed in the same transaction.

Rule 1: that row also names the run that owns the sink: the run that began last. The row is locked while an epoch is
        written, so an older run either ends its epoch before a newer run reads the row, or finds itself replaced.
Rule 2: the epoch in the row is already written, and the next one is due. Any other epoch, or one of another checkpoint,
        is refused.
Rule 3: of an epoch's rows that are equal in the upsert columns, the last one is written.
Rule 4: a table that does not exist is created. Structs and maps become jsonb, times become timestamptz.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from ottla.pipelines.run.checkpoint import RunFenced
from ottla.pipelines.run.requirements import MissingRequirement
from ottla.pipelines.sink.writing import EpochResult, RunContext, SinkRefused, is_due
from ottla.pipelines.spec.keys import SINK_INPUT, UPSERT, TableForm, TableKey
from ottla.pipelines.spec.model import Sink
from ottla.pipelines.spec.problems import SecretFound, Unfit
from ottla.pipelines.spec.sinks import SinkKind, listed_columns
from ottla.pipelines.spec.values import ValueKind, matching

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField

EPOCHS_TABLE: Final = "ottla_epochs"
_CREATE_EPOCHS: Final = (
    f"CREATE TABLE IF NOT EXISTS {EPOCHS_TABLE} (pipeline text, sink text, checkpoint text NOT NULL, run text NOT NULL,"
    " epoch bigint NOT NULL, PRIMARY KEY (pipeline, sink))"
)
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtext('ottla'))"
_STAGED: Final = "ottla_epoch_rows"
_NUMBER: Final = "ottla_number"
_TYPES: Final = {
    "boolean": "boolean",
    "byte": "smallint",
    "short": "smallint",
    "integer": "integer",
    "long": "bigint",
    "float": "real",
    "double": "double precision",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
"""PostgreSQL's types by the names that Spark's types have."""
_IN_ARRAYS: Final = frozenset({"boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "string"})
"""Arrays of these are arrays of PostgreSQL; others become jsonb."""


@dataclass(frozen=True)
class PostgresSink(Sink):
    url: str
    table: str
    upsert: tuple[str, ...]
    password_variable: str


class PostgresWriter:
    def __init__(self, sink: PostgresSink, run: RunContext) -> None:
        """Raises MissingRequirement and SinkRefused."""
        try:
            import psycopg
        except ImportError:
            raise MissingRequirement(
                f"sink {sink.name} writes to PostgreSQL with psycopg, which is not installed here: "
                "pip install 'ottla[spark]'"
            ) from None
        self._psycopg = psycopg
        self._sink = sink
        self._run = run
        self._pipeline = run.identity.group_id
        if sink.password_variable and sink.password_variable not in os.environ:
            raise SinkRefused(f"sink {sink.name}: the environment variable {sink.password_variable} is not set")

    def begin(self) -> None:
        with self._refusing(EPOCHS_TABLE), self._connection() as connection:
            connection.execute(_LOCK)
            connection.execute(_CREATE_EPOCHS)
            connection.execute(
                f"INSERT INTO {EPOCHS_TABLE} VALUES (%s, %s, %s, %s, -1) ON CONFLICT DO NOTHING",
                (self._pipeline, self._sink.name, self._run.checkpoint_id, self._run.name),
            )
            self._locked_epoch(connection)
            self._set(connection, "run = %s, checkpoint = %s", (self._run.name, self._run.checkpoint_id))

    def write(self, rows: "DataFrame", epoch: int) -> EpochResult:
        with self._refusing(self._sink.table), self._connection() as connection:
            if not is_due(self._sink.name, epoch, self._locked_epoch(connection), EPOCHS_TABLE):
                return EpochResult(0, skipped=1)
            count = self._write(connection, rows)
            self._set(connection, "epoch = %s", (epoch,))
        return EpochResult(count)

    @contextmanager
    def _refusing(self, table: str) -> Iterator[None]:
        """Turn errors that a retry cannot resolve into SinkRefused: the database refuses rows, tables or this user."""
        refusals = (self._psycopg.DataError, self._psycopg.IntegrityError, self._psycopg.ProgrammingError)
        try:
            yield
        except refusals as error:
            raise SinkRefused(f"sink {self._sink.name}: table {table}: {str(error).strip()}") from error

    def _connection(self) -> Any:
        """A connection whose transaction is committed at the end of the block."""
        variable = self._sink.password_variable
        password: dict[str, Any] = {"password": os.environ[variable]} if variable else {}
        return self._psycopg.connect(self._sink.url, application_name=self._pipeline, **password)

    def _locked_epoch(self, connection: Any) -> int:
        """Lock the sink's row and return the last epoch written. Raises RunFenced and SinkRefused."""
        found = connection.execute(
            f"SELECT checkpoint, run, epoch FROM {EPOCHS_TABLE} WHERE pipeline = %s AND sink = %s FOR UPDATE",
            (self._pipeline, self._sink.name),
        ).fetchone()
        if found is None:
            raise SinkRefused(f"sink {self._sink.name}: the row in {EPOCHS_TABLE} that names its last epoch is gone")
        checkpoint, run, epoch = found
        if run > self._run.name:
            raise RunFenced(f"sink {self._sink.name}: another run of the pipeline took over ({run}); this one stops")
        if checkpoint != self._run.checkpoint_id and epoch >= 0:
            raise SinkRefused(
                f"sink {self._sink.name}: the epochs up to {epoch} were written by a run with another checkpoint "
                f"({checkpoint}, this one is {self._run.checkpoint_id}). Run with that one, or start over: choose "
                f"another name for the pipeline, or delete its row from {EPOCHS_TABLE}"
            )
        return int(epoch)

    def _set(self, connection: Any, what: str, values: tuple[object, ...]) -> None:
        connection.execute(
            f"UPDATE {EPOCHS_TABLE} SET {what} WHERE pipeline = %s AND sink = %s",
            (*values, self._pipeline, self._sink.name),
        )

    def _write(self, connection: Any, rows: "DataFrame") -> int:
        table, columns = _name(self._sink.table), [_quoted(name) for name in rows.columns]
        connection.execute(_create(table, rows, self._sink.upsert))
        listed = ", ".join(columns)
        if not self._sink.upsert:
            return _copy(connection, rows, f"COPY {table} ({listed}) FROM STDIN")
        connection.execute(
            f"CREATE TEMPORARY TABLE {_STAGED} ON COMMIT DROP AS SELECT {listed} FROM {table} WITH NO DATA"
        )
        connection.execute(f"ALTER TABLE {_STAGED} ADD {_NUMBER} bigserial")
        count = _copy(connection, rows, f"COPY {_STAGED} ({listed}) FROM STDIN")
        keys = ", ".join(map(_quoted, self._sink.upsert))
        others = [name for name in rows.columns if name not in self._sink.upsert]
        change = ", ".join(f"{_quoted(name)} = EXCLUDED.{_quoted(name)}" for name in others)
        connection.execute(
            f"INSERT INTO {table} ({listed}) SELECT DISTINCT ON ({keys}) {listed} FROM {_STAGED} "
            f"ORDER BY {keys}, {_NUMBER} DESC ON CONFLICT ({keys}) "
            + (f"DO UPDATE SET {change}" if change else "DO NOTHING")
        )
        return count


def _copy(connection: Any, rows: "DataFrame", command: str) -> int:
    count = 0
    with connection.cursor() as cursor, cursor.copy(command) as copy:
        for row in _plain_rows(rows):
            copy.write_row(row)
            count += 1
    return count


def _plain_rows(rows: "DataFrame") -> Iterator[list[Any]]:
    """The rows as lists of plain values, fetched partition by partition. Times are texts with their zone, because Spark
    would convert them to this machine's zone."""
    plain = rows.select(*(_plain(field) for field in rows.schema.fields))
    for row in plain.toLocalIterator(prefetchPartitions=True):
        yield [bytes(value) if isinstance(value, bytearray) else value for value in row]


def _plain(field: "StructField") -> "Column":
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    column = F.col(f"`{field.name}`")
    kind = field.dataType.typeName()
    if kind == "timestamp":
        return F.concat(column.cast("string"), F.lit("+00"))
    if kind == "timestamp_ntz":
        return column.cast("string")
    return column if kind in (*_TYPES, "decimal") or _is_plain_array(field.dataType) else F.to_json(column)


def _is_plain_array(kind: "DataType") -> bool:
    return kind.typeName() == "array" and _facts(kind).elementType.typeName() in _IN_ARRAYS


def _facts(kind: "DataType") -> Any:
    """The type with the attributes of its class: an array's `elementType`, a decimal's `precision`."""
    return kind


def _create(table: str, rows: "DataFrame", upsert: tuple[str, ...]) -> str:
    columns = [f"{_quoted(field.name)} {_type(field.dataType)}" for field in rows.schema.fields]
    if upsert:
        columns.append(f"PRIMARY KEY ({', '.join(map(_quoted, upsert))})")
    return f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(columns)})"


def _type(kind: "DataType") -> str:
    if kind.typeName() == "decimal":
        return f"numeric({_facts(kind).precision}, {_facts(kind).scale})"
    if _is_plain_array(kind):
        return f"{_type(_facts(kind).elementType)}[]"
    return _TYPES.get(kind.typeName(), "jsonb")


def _name(table: str) -> str:
    return ".".join(map(_quoted, table.split(".")))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_URL: Final = "an address such as postgresql://shop@localhost:5432/shop"


def _read_url(value: object) -> str:
    """The address of a database. Raises SecretFound if a password is in it."""
    if not isinstance(value, str):
        raise Unfit(_URL)
    try:
        parts = urlsplit(value)
        if parts.password is not None or "password=" in parts.query:
            told = "has a password in it; put that into an environment variable and name it with password_variable"
            raise SecretFound(_URL, told)
        fits = parts.scheme in ("postgresql", "postgres") and bool(parts.hostname and parts.path.strip("/"))
        fits = fits and parts.port != 0
    except ValueError as error:
        if isinstance(error, Unfit):
            raise
        fits = False
    if not fits:
        raise Unfit(_URL)
    return value


def _describe(sink: PostgresSink) -> Iterator[str]:
    yield f"postgres {sink.url} table {sink.table}"
    yield from listed_columns("upsert by", sink.upsert)


POSTGRES_URL: Final = ValueKind(_URL, _read_url, str)
TABLE: Final = matching("a table's name, as in orders or shop.orders", r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")
VARIABLE: Final = matching("the name of an environment variable", r"[A-Za-z_][A-Za-z0-9_]*")

KIND = SinkKind(
    form=TableForm(
        "a PostgreSQL sink",
        ("postgres",),
        (
            TableKey(
                "postgres", POSTGRES_URL, "The database.", required=True, field="url", is_target=True, exclusive=True
            ),
            TableKey("table", TABLE, "The table to write.", required=True, is_target=True, exclusive=True),
            SINK_INPUT,
            UPSERT,
            TableKey(
                "password_variable",
                VARIABLE,
                "The environment variable that has the password; a file never does.",
                "",
                default_doc="no password",
            ),
        ),
        PostgresSink,
    ),
    writer=lambda sink, run, _spark: PostgresWriter(sink, run),
    describe=_describe,
    epoch_doc="a row of `ottla_epochs`, in the same transaction",
)
