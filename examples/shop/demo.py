"""The shop from end to end, on a node and in directories that are there only as long as it runs.

Rule 1: a chunk of events is in the topics before the next one is sent. Chunk and overtaking together are less than the
        watermark's delay, so no event is late by accident, however slow the machine.
Rule 2: late events are sent when all sinks' clocks are past their windows; then they are late for certain.
Rule 3: the sums at the end are made of what is in the topics and tables then, read anew; not of what was shown.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from examples.node import running_node
from examples.postgres_server import NoPostgres, running_postgres
from examples.shop import events
from examples.shop.accounts import Accounts, Sink, Windows
from examples.shop.screen import Figures, Screen
from examples.topics import APPEND_TIME, committed_records, create_topics, ends, read_on
from ottla.client import Client, Producer
from ottla.pipelines import Pipeline, load_toml
from ottla.pipelines.run.checkpoint import RunStatus
from ottla.pipelines.run.failures import failure_of
from ottla.pipelines.sink.postgres import PostgresSink
from ottla.pipelines.spec.model import TopicSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from examples.shop.progress import Progress

HERE: Final = Path(__file__).parent
WINDOWS: Final = "shop.windows"
DEAD_LETTERS: Final = "shop.dead-letters"
PARTITIONS: Final = 2
CHUNK_MS: Final = 15_000
LOOK_S: Final = 0.2
WRONG: Final = 1
INTERRUPTED: Final = 130
SPARK_SETTINGS: Final = {
    "spark.sql.streaming.numRecentProgressUpdates": "10000",  # All of them: late events are summed up at the end.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # For a minute's work, compiling well costs too much.
}


class Interrupted(Exception):
    """Somebody pressed Ctrl-C, or closed the terminal."""


class Demo:
    def __init__(self, home: Path, count: int, seconds: float) -> None:
        self._home, self._count, self._seconds = home, count, seconds
        late, off_duty = len(list(events.late())), len(list(events.off_duty()))
        self._figures = Figures(to_send=count + late + off_duty)
        self._screen = Screen(self._figures)
        self._interrupted = asyncio.Event()

    async def run(self, *, postgres: bool) -> int:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self._interrupted.set)
        painting = asyncio.create_task(self._paint())
        try:
            with self._screen, ExitStack() as stack:
                pipeline = await asyncio.to_thread(self._pipeline, stack, postgres=postgres)
                bootstrap = await asyncio.to_thread(stack.enter_context, running_node(self._home))
                accounts = await self._play(pipeline, bootstrap)
        except Interrupted:
            self._screen.say("Stopped before the end: there is nothing to sum up.")
            return INTERRUPTED
        except Exception as error:  # The engine's failures too: the reason is what counts.
            self._screen.say(f"The demo failed: {failure_of(error).reason}")
            return WRONG
        finally:
            painting.cancel()
        self._screen.summary(accounts)
        return WRONG if any(accounts.faults()) else 0

    def _pipeline(self, stack: ExitStack, *, postgres: bool) -> Pipeline:
        """The file's, with the address of a database that is made for it, or without that sink."""
        found = load_toml(str(HERE / "pipeline.toml"))
        pipeline = replace(found, checkpoint=str(self._home / "checkpoint"))
        try:
            if not postgres:
                raise NoPostgres("PostgreSQL is not wanted")
            url = stack.enter_context(running_postgres()).url
        except NoPostgres as missing:
            self._screen.say(f"{missing}; results go to topics alone.")
            return replace(pipeline, sinks=tuple(sink for sink in pipeline.sinks if isinstance(sink, TopicSink)))
        sinks = (replace(sink, url=url) if isinstance(sink, PostgresSink) else sink for sink in pipeline.sinks)
        return replace(pipeline, sinks=tuple(sinks))

    async def _play(self, pipeline: Pipeline, bootstrap: str) -> Accounts:
        async with Client(bootstrap) as client:
            inputs = {events.ORDERS: APPEND_TIME, events.COURIERS: APPEND_TIME}
            await create_topics(client, PARTITIONS, {**inputs, WINDOWS: {}, DEAD_LETTERS: {}})
            self._figures.phase = "starting Spark"
            spark = await asyncio.to_thread(self._session)
            try:
                progress = await self._live(client, pipeline, bootstrap, spark)
            finally:
                await asyncio.to_thread(spark.stop)
            return await _accounts(client, pipeline, progress)

    def _session(self) -> "SparkSession":
        from ottla.pipelines.spark.session import SessionOptions, open_session

        with _errors_into(self._home / "spark.log"):
            return open_session(SessionOptions("ottla shop", settings=SPARK_SETTINGS))

    async def _live(self, client: Client, pipeline: Pipeline, bootstrap: str, spark: "SparkSession") -> "Progress":
        """The pipeline in a thread, and beside it the shop and whoever looks at the results."""
        from examples.shop.progress import Progress
        from ottla.pipelines.spark.run import PipelineRun, RunOptions

        run = PipelineRun(spark, pipeline, RunOptions(str(HERE), bootstrap))
        progress = Progress(spark)

        def shown(status: RunStatus) -> None:
            progress.look()
            self._figures.take(status, late=progress.late("windows"))

        running = asyncio.create_task(asyncio.to_thread(run.run, shown))
        interrupted = asyncio.create_task(self._interrupted.wait())
        watching = asyncio.create_task(self._watch(client))
        story = asyncio.create_task(self._story(client, pipeline, progress))
        try:
            done, _ = await asyncio.wait({running, interrupted, watching, story}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task  # What it raised is raised here.
            if interrupted in done:
                self._figures.phase = "stopping"
                raise Interrupted
        finally:
            for task in (interrupted, watching, story):
                task.cancel()
            run.stop()
            await asyncio.wait({running})
        return progress

    async def _story(self, client: Client, pipeline: Pipeline, progress: "Progress") -> None:
        sinks = [sink.name for sink in pipeline.sinks]
        async with Producer(client) as producer:
            await self._day(producer)
            self._figures.phase = "closed; some couriers had no network"
            await _until(lambda: progress.watermark_ms(sinks) >= events.OPENS_MS + events.LATE_MS)
            await self._send(producer, events.late())
            await self._send(producer, events.off_duty())
            self._figures.phase = "the last minutes become final"
            await _until(lambda: progress.watermark_ms(sinks) >= events.CLOSES_MS)

    async def _day(self, producer: Producer) -> None:
        """Spark takes seconds over its first epoch, whatever is in it: the others wait for the first customers."""
        chunks = groupby(events.day(self._count), lambda event: event.arrives_ms // CHUNK_MS)
        pause_s = self._seconds * CHUNK_MS / (events.CLOSES_MS - events.OPENS_MS)
        self._figures.phase = "the first customers (the first epoch takes Spark a while)"
        await self._send(producer, next(chunks)[1])
        await _until(lambda: self._figures.read > 0)
        self._figures.phase = "open"
        for _, chunk in chunks:
            await asyncio.gather(self._send(producer, chunk), asyncio.sleep(pause_s))

    async def _send(self, producer: Producer, chunk: Iterable[events.Event]) -> None:
        """Returns when all of it is in the topics."""
        deliveries = []
        for event in chunk:
            if not producer.has_room:
                await producer.room()
            deliveries.append(producer.send(event.topic, event.value, key=event.city.encode()))
        await asyncio.gather(*deliveries)
        self._figures.sent += len(deliveries)

    async def _watch(self, client: Client) -> None:
        async for records in read_on(client, [WINDOWS, DEAD_LETTERS], PARTITIONS):
            for record in records:
                if record.topic == WINDOWS:
                    self._figures.windows.add(json.loads(record.value))
                else:
                    self._figures.dead_letters += 1

    async def _paint(self) -> None:
        while True:
            self._screen.show()
            await asyncio.sleep(LOOK_S)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(LOOK_S)


@contextmanager
def _errors_into(path: Path) -> Iterator[None]:
    """What processes that are started in the block write to standard error would spoil the picture."""
    kept = os.dup(sys.stderr.fileno())
    with path.open("ab") as log:
        os.dup2(log.fileno(), sys.stderr.fileno())
    try:
        yield
    finally:
        os.dup2(kept, sys.stderr.fileno())
        os.close(kept)


async def _accounts(client: Client, pipeline: Pipeline, progress: "Progress") -> Accounts:
    windows: dict[str, Windows] = {}
    for sink in pipeline.sinks:
        windows[sink.name] = Windows()
        rows = _table_rows(sink) if isinstance(sink, PostgresSink) else await _topic_rows(client)
        for row in rows:
            windows[sink.name].add(row)
    arrived = await ends(client, [events.ORDERS, events.COURIERS], PARTITIONS)
    dead = [len(records) async for records in committed_records(client, [DEAD_LETTERS], PARTITIONS)]
    return Accounts(
        records=sum(arrived.values()),
        off_duty=len(list(events.off_duty())),
        dead_letters=sum(dead),
        sinks={name: Sink(found, progress.late(name)) for name, found in windows.items()},
    )


async def _topic_rows(client: Client) -> list[dict[str, Any]]:
    return [
        json.loads(record.value)
        async for records in committed_records(client, [WINDOWS], PARTITIONS)
        for record in records
    ]


def _table_rows(sink: PostgresSink) -> list[dict[str, Any]]:
    import psycopg
    from psycopg.rows import dict_row

    with psycopg.connect(sink.url, row_factory=dict_row) as connection:
        return connection.execute("SELECT * FROM windows").fetchall()
