"""Explanations of the costliest lines, by function, and of missed aims, by load."""

LINES = {
    "SocketWriter._send_slice": "the system's own `sendfile`: one call a fetch of 1 MiB, no copy; what bare `sendfile` "
    "needs stands in the table of bare limits",
    "SocketWriter._send_around": "`sendfile` between two `send`: the head waits for the records, which are not copied; "
    "what bare `sendfile` needs stands in the table of bare limits",
    "SocketWriter._send_buffers": "one `send` for all the answers of a connection that are ready in a round",
    "SocketWriter._send_at_once": "the system's `send`, which also wakes the client; one a connection and round",
    "LocalFile.write": "one `pwritev` for all batches of a partition that arrived in a round, straight from the buffer "
    "they were received into",
    "LocalFile.read": "look-ups in the index: the page of the look-up before is tried first",
    "LocalFile.read_warm": "one small read tells whether a slice is in memory, and where the next one begins",
    "Runner.run": "the event loop itself and the system below it (`epoll_pwait`, `read`): native code counts for its "
    "caller",
    "run": "the event loop itself and the system below it (`epoll_pwait`, `read`): native code counts for its caller",
    "_walk": "the reference kernel's walk over the records",
    "_run": "the reference kernel's comparison of records of one size, by columns",
    "Waiter.__init__": "an entry in the node's waiting room, which has one timer for all; it was a future",
    "BusyPoll._go_round": "the loop stays awake while a client that asks again at once does so",
    "SendRound.add": "an answer that nobody else's can join leaves at once; only others wait for the end of the round",
    "Appends._take": "ordinary requests are not decoded: one call of the kernel checks, numbers and "
    "answers all that a connection sent",
    "PartitionLog.append": "a constant handful of calls a batch; the walk over the records is the kernel's",
}

_WRITING = (
    "a third of the broker's time is writing into the page cache; bare C receives and writes 128 KiB at a time, and "
    "has no request to read and no answer to send"
)
_SENDFILE = (
    "Kafka sends by `sendfile` too, which is most of what either needs (see the bare limits); around the one call a "
    "fetch of 1 MiB has six others (a look whether the pages are there, two `send`, `read`, `epoll_pwait`, and mostly "
    "a `pread` of the index)"
)

MISSES = {
    "produce 10 x 100 B, 1 connection": "between two requests of a client that is alone and waits for each answer the "
    "broker stays awake (`broker/network/tuning/busy_poll`): all the time that the client takes counts as the "
    "broker's CPU, which is a seventh more than falling asleep and being woken would",
    "consume 100 B, catch-up": "the client is what is measured: the broker is idle nine tenths of the time (its CPU "
    "seconds against the seconds the load takes); `bytes only` has no such client",
    "consume 1,000 B, catch-up": f"the client is what is measured: the broker is idle most of the time. {_SENDFILE}",
    "read 1,000 B, catch-up, bytes only": _SENDFILE,
    "50 records/s, 100 readers": "each of the hundred answers costs a `send` that wakes its reader, and the `read` of "
    "the next request",
}

REFERENCE_MISSES = {
    "produce 50 to 150 B, 16 KiB batches": "records of mixed sizes are walked one by one in Python (`_walk`), some "
    "150 a batch; this is what the native kernel is for",
    "produce 10 x 100 B, 100 connections": "three system calls a request (`read`, `pwritev`, `send`; one `epoll_pwait` "
    "for seventy) take a fifth of the time, the rest is the interpreter: a quarter of it the check of the ten records",
}

BARE_MISSES = {
    "produce 1,000 B, 16 KiB batches": _WRITING,
    "produce 1,000 B, 128 KiB batches": _WRITING,
    "produce 16 x 1,000 B, 50 connections": f"{_WRITING}. Each connection has one request under way, so that each "
    "batch costs an event, a `read` and a `send` of its own",
}
