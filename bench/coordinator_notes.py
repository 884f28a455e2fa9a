"""Explanations of the costliest lines, by function, and of missed aims, by load."""

from bench import broker_notes

LINES: dict[str, str] = broker_notes.LINES | {
    "codec": "decoding or encoding field by field, in code made for this message and version; an empty string, as "
    "metadata nearly always is, costs a comparison",
    "RowReader.__call__": "fifty partitions read column by column; one by one they took five times as long",
    "OffsetCommits.add": "the bytes of fifty values, one `pack` each; their keys are those of the last commit",
    "HostedShard._flush": "one batch for the commits of a connection that leave together, sixteen at most, and for the "
    "heartbeats of a round of the loop",
    "_assign_same": "the target is computed for everyone who joins, in Kafka too where the assignment interval is 0; "
    "who keeps its partitions costs a look",
}

_HEARTBEATS = (
    "who waits for others' partitions rests 100 ms, in Kafka too; the rest of the time is the work of the joins, which "
    "come all at once and are decided one after the other, each with the target and the log records it changes"
)
_ONE_THREAD = "the loop is busy all the while: the time is its CPU time; Kafka has both cores"

MISSES: dict[str, str] = {
    "commit 50 partitions, 10 connections": "half of it is what any request costs, a fifth the `pack` of fifty values",
    "consumer, 3 members": _HEARTBEATS,
    "consumer, 50 members": _HEARTBEATS,
    "consumer, 300 members": _HEARTBEATS,
    "classic, 50 members": _ONE_THREAD,
    "classic, 300 members": _ONE_THREAD,
}
