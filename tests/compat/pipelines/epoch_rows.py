"""Rows of epochs that anybody can make again, and a process that writes them and may be killed at any point.

    python epoch_rows.py BOOTSTRAP PIPELINE TOPIC DEAD_TOPIC FIRST_EPOCH LAST_EPOCH

says `rows EPOCH NUMBER` before it hands over each part of an epoch's rows, and `written EPOCH` or `skipped EPOCH` when
it is done.
"""

import sys
from collections.abc import Iterator

import pyarrow as pa

from ottla.pipelines.sink.topic_writer import TopicTarget, write_epoch
from ottla.pipelines.spec.identity import PipelineIdentity

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)
PARTS, PART_ROWS = 6, 200
DEAD_EVERY = 50
SINK = "out"


def batch_of(rows: list[dict[str, object]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def values_of(epoch: int) -> list[bytes]:
    """What the sink's topic gets; every DEAD_EVERY-th goes to the dead letters instead."""
    return [b"%d/%d" % (epoch, n) for n in range(PARTS * PART_ROWS)]


def parts_of(epoch: int, topic: str, dead_topic: str) -> Iterator[pa.RecordBatch]:
    values = values_of(epoch)
    for start in range(0, len(values), PART_ROWS):
        yield batch_of(
            [
                {"topic": topic if n % DEAD_EVERY else dead_topic, "key": b"%d" % (n % 31), "value": values[n]}
                for n in range(start, start + PART_ROWS)
            ]
        )


def _told(epoch: int, parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for number, part in enumerate(parts):
        print("rows", epoch, number, flush=True)
        yield part


def main(bootstrap: str, pipeline: str, topic: str, dead_topic: str, first: str, last: str) -> None:
    target = TopicTarget(bootstrap, PipelineIdentity(pipeline), SINK, topic, batch_bytes=4_000, linger_ms=0)
    for epoch in range(int(first), int(last) + 1):
        written = write_epoch(target, 0, epoch, _told(epoch, parts_of(epoch, topic, dead_topic)))
        print("skipped" if written.skipped else "written", epoch, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
