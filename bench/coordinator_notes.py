"""What is known of the costliest lines, by the function they are in, and of aims that were missed, by the load."""

from bench import broker_notes

LINES: dict[str, str] = broker_notes.LINES | {
    "codec": "decoding or encoding field by field, in code made for this message and version; an empty string, as "
    "metadata nearly always is, costs a comparison (a commit of fifty partitions: 24 to 17 µs)",
    "Offsets.replay_commits": "fifty offsets put down by one call over columns; one by one, with a record, an origin "
    "and a value for each, a commit of fifty took 294 µs, now a third of it",
    "OffsetCommits.add": "the bytes of fifty values, one `pack` each; their keys are those of the last commit",
    "HostedShard._flush": "one batch for the commits of a connection that leave together, sixteen at most; one for "
    "each took a quarter longer",
    "_assign_same": "the target is computed for everyone who joins, in Kafka too where the assignment interval is 0; "
    "who keeps its partitions is not copied, and topics are looked up once for all",
    "replace": "a member that changes is a new member: deciding changes nothing",
}

_ONE_THREAD = (
    "the loop is busy all the while: the time is its CPU time, and no line of it has more than some 6 %; Kafka has "
    "both cores"
)

MISSES: dict[str, str] = {
    "commit 50 partitions, 10 connections": "1.3 µs a partition, of which decoding, putting down and `pack` take two "
    "thirds; all three are loops of the interpreter's own or code made for the message",
    "consumer, 50 members": _ONE_THREAD,
    "classic, 300 members": _ONE_THREAD,
    "consumer, 300 members": _ONE_THREAD,
}
