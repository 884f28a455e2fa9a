"""Rows into a table of PostgreSQL. The epoch is a row of `ottla_epochs`, changed in the transaction of the rows.

Rule 1: that row also names the run that owns the sink: the one that began last. It is locked while an epoch is written,
        so an older run either ends its epoch before the newer one looks, or finds that it has been replaced.
Rule 2: the row's epoch is there already, the next one is due. Any other, or one of another checkpoint, is refused.
Rule 3: of rows of an epoch that are equal in the upsert columns, the last one counts.
Rule 4: a table that is not there is made. Structures and maps are jsonb, times are timestamptz.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NumericType,
    ShortType,
    StringType,
    StructField,
    TimestampNTZType,
    TimestampType,
)

from ottla.pipelines.checkpoint import Fenced
from ottla.pipelines.requirements import MissingRequirement
from ottla.pipelines.spark.sinks.writing import Outcome, Run, SinkRefused, is_due
from ottla.pipelines.spec import PostgresSink

EPOCHS_TABLE: Final = "ottla_epochs"
_CREATE_EPOCHS: Final = (
    f"CREATE TABLE IF NOT EXISTS {EPOCHS_TABLE} (pipeline text, sink text, checkpoint text NOT NULL, run text NOT NULL,"
    " epoch bigint NOT NULL, PRIMARY KEY (pipeline, sink))"
)
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtext('ottla'))"
_STAGED: Final = "ottla_epoch_rows"
_NUMBER: Final = "ottla_number"
_TYPES: Final[dict[type[DataType], str]] = {
    BooleanType: "boolean",
    ByteType: "smallint",
    ShortType: "smallint",
    IntegerType: "integer",
    LongType: "bigint",
    FloatType: "real",
    DoubleType: "double precision",
    StringType: "text",
    BinaryType: "bytea",
    DateType: "date",
    TimestampType: "timestamptz",
    TimestampNTZType: "timestamp",
}


class PostgresWriter:
    def __init__(self, sink: PostgresSink, run: Run) -> None:
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

    def write(self, rows: DataFrame, epoch: int) -> Outcome:
        with self._refusing(self._sink.table), self._connection() as connection:
            if not is_due(self._sink.name, epoch, self._locked_epoch(connection), EPOCHS_TABLE):
                return Outcome(0, skipped=1)
            count = self._write(connection, rows)
            self._set(connection, "epoch = %s", (epoch,))
        return Outcome(count)

    @contextmanager
    def _refusing(self, table: str) -> Iterator[None]:
        """What the database has against rows, tables or this user it will have at the next attempt too."""
        refusals = (self._psycopg.DataError, self._psycopg.IntegrityError, self._psycopg.ProgrammingError)
        try:
            yield
        except refusals as error:
            raise SinkRefused(f"sink {self._sink.name}: table {table}: {str(error).strip()}") from error

    def _connection(self) -> Any:
        """A transaction: committed at the end of the block."""
        variable = self._sink.password_variable
        password: dict[str, Any] = {"password": os.environ[variable]} if variable else {}
        return self._psycopg.connect(self._sink.url, application_name=self._pipeline, **password)

    def _locked_epoch(self, connection: Any) -> int:
        """The last epoch that the database has. Raises Fenced and SinkRefused."""
        found = connection.execute(
            f"SELECT checkpoint, run, epoch FROM {EPOCHS_TABLE} WHERE pipeline = %s AND sink = %s FOR UPDATE",
            (self._pipeline, self._sink.name),
        ).fetchone()
        if found is None:
            raise SinkRefused(f"sink {self._sink.name}: its row of {EPOCHS_TABLE} is gone, and with it the last epoch")
        checkpoint, run, epoch = found
        if run > self._run.name:
            raise Fenced(f"sink {self._sink.name}: another run of the pipeline took over ({run}); this one stops")
        if checkpoint != self._run.checkpoint_id and epoch >= 0:
            raise SinkRefused(
                f"sink {self._sink.name}: the epochs up to {epoch} were written by a run with another checkpoint "
                f"({checkpoint}, this one is {self._run.checkpoint_id}). Run with that one, or begin anew: choose "
                f"another name for the pipeline, or delete its row from {EPOCHS_TABLE}"
            )
        return int(epoch)

    def _set(self, connection: Any, what: str, values: tuple[object, ...]) -> None:
        connection.execute(
            f"UPDATE {EPOCHS_TABLE} SET {what} WHERE pipeline = %s AND sink = %s",
            (*values, self._pipeline, self._sink.name),
        )

    def _write(self, connection: Any, rows: DataFrame) -> int:
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


def _copy(connection: Any, rows: DataFrame, command: str) -> int:
    count = 0
    with connection.cursor() as cursor, cursor.copy(command) as copy:
        for row in _plain_rows(rows):
            copy.write_row(row)
            count += 1
    return count


def _plain_rows(rows: DataFrame) -> Iterator[list[Any]]:
    """Partition by partition. Times travel as text with their zone: Spark would give them in this machine's."""
    plain = rows.select(*(_plain(field) for field in rows.schema.fields))
    for row in plain.toLocalIterator(prefetchPartitions=True):
        yield [bytes(value) if isinstance(value, bytearray) else value for value in row]


def _plain(field: StructField) -> Column:
    column = F.col(f"`{field.name}`")
    kind = field.dataType
    if isinstance(kind, TimestampType):
        return F.concat(column.cast("string"), F.lit("+00"))
    if isinstance(kind, TimestampNTZType):
        return column.cast("string")
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, NumericType | StringType | BooleanType):
        return column
    if type(kind) in _TYPES or isinstance(kind, DecimalType):
        return column
    return F.to_json(column)


def _create(table: str, rows: DataFrame, upsert: tuple[str, ...]) -> str:
    columns = [f"{_quoted(field.name)} {_type(field.dataType)}" for field in rows.schema.fields]
    if upsert:
        columns.append(f"PRIMARY KEY ({', '.join(map(_quoted, upsert))})")
    return f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(columns)})"


def _type(kind: DataType) -> str:
    if isinstance(kind, DecimalType):
        return f"numeric({kind.precision}, {kind.scale})"
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, NumericType | StringType | BooleanType):
        return f"{_type(kind.elementType)}[]"
    return _TYPES.get(type(kind), "jsonb")


def _name(table: str) -> str:
    return ".".join(map(_quoted, table.split(".")))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
