"""How many bytes must be waiting before a connection is read.

A producer that is slower than the broker wakes it for each batch, and a wake-up costs more than a batch. When requests
stream in, the kernel can wake the broker after several of them have arrived, like interrupt moderation of network
cards. The number of bytes is the connection's mark. Latency is protected:

Rule 1: only a client that sends without waiting for responses is delayed, and always for fewer requests than it was
        seen to have in flight: a client that has sent all it may waits for the broker.
Rule 2: at the present rate no request waits longer than `PATIENCE_MS` for the ones read with it. A client with small
        requests does not batch: it wants responses soon and is read at once.
Rule 3: a client that pauses is not delayed. While there is a mark, a timer checks the connection at short intervals; if
        it was not read since the previous check the mark is removed, and the waiting bytes are read.
Rule 4: repeated pauses between requests that are read together are caused by the mark. Then the mark is lowered by one
        request and not raised again for `RETRY_MS`. A few pauses are normal.
Rule 5: anything else on the connection (another request, a delay in the broker) ends the stream, and it must be
        detected again.
"""

from struct import Struct

PATIENCE_MS = 0.5
WINDOW_MS = 16
"""Long enough to measure the rate with a clock of milliseconds."""
TOGETHER_MIN = 2
"""Reads per window that bring more than one request; fewer could be coincidence."""
REQUEST_MIN = 1 << 12
"""In bytes."""
REQUESTS_MAX = 4
ENOUGH_TOGETHER = 2 * REQUESTS_MAX
"""A client faster than the broker brings this many by itself, and a mark gains nothing."""
MARK_MAX = 1 << 16
"""Below half of every usual receive buffer; above that the kernel reduces the mark or the TCP window."""
PAUSE_BLAME = 8
"""The number of reads without a pause after which a pause is forgotten."""
BLAME_MAX = 3 * PAUSE_BLAME
RETRY_MS = 10_000
_SIZE = Struct(">i")


class ReadPace:
    """The pace of one connection, whose requests are similar."""

    __slots__ = (
        "_blame",
        "_bytes",
        "_ceiling",
        "_open_seen",
        "_reads",
        "_requests",
        "_retry_ms",
        "_since_ms",
        "_together",
        "_wanted",
        "mark",
    )

    def __init__(self, now_ms: int) -> None:
        self.mark = 1
        """The connection is read when this many bytes are waiting."""
        self._open_seen = 1
        """The most requests that arrived in one read, including one that had only begun."""
        self._ceiling = REQUESTS_MAX
        self._retry_ms = now_ms
        self._blame = 0
        self._look_anew(now_ms)

    def _look_anew(self, now_ms: int) -> None:
        self._requests, self._wanted = 1, 1
        self._since_ms = now_ms
        self._reads, self._bytes, self._together = 0, 0, 0

    def took(self, now_ms: int, data: memoryview) -> int:
        """Record a read of whole requests and possibly part of another; returns the new mark."""
        taken, request = len(data), _SIZE.unpack_from(data)[0] + _SIZE.size
        self._reads += 1
        self._bytes += taken
        if taken > request:
            self._together += 1
            if self._open_seen <= REQUESTS_MAX:
                self._open_seen = max(self._open_seen, _requests_in(data))
        if now_ms - self._since_ms >= WINDOW_MS:
            self._judge(now_ms, request)
        if self._blame:
            self._blame -= 1
        self.mark = self._wanted
        return self.mark

    def _judge(self, now_ms: int, request: int) -> None:
        """Set the mark at the end of a window."""
        if self._ceiling < REQUESTS_MAX and now_ms >= self._retry_ms:
            self._ceiling += 1
            self._retry_ms = now_ms + RETRY_MS
        company = PATIENCE_MS * self._bytes / (now_ms - self._since_ms)
        is_stream = self._together >= TOGETHER_MIN and self._bytes < ENOUGH_TOGETHER * request * self._reads
        self._look_anew(now_ms)
        half = request // 2
        requests = min(1 + int(company / request), self._open_seen - 1, self._ceiling, (MARK_MAX + half) // request)
        if is_stream and requests > 1 and request >= REQUEST_MIN:
            # The last one may be slightly smaller than the others.
            self._requests, self._wanted = requests, requests * request - half

    def unread(self, now_ms: int, waiting_bytes: int) -> int:
        """Record that nothing was read between two checks while `waiting_bytes` wait; returns the new mark."""
        if waiting_bytes >= self.mark:
            return self.mark  # The broker is late, not the client.
        if waiting_bytes:
            self._blame += PAUSE_BLAME
            if self._blame > BLAME_MAX:
                self._ceiling = max(self._requests - 1, 1)
                self._retry_ms = now_ms + RETRY_MS
                self._blame = 0
                self._look_anew(now_ms)
        self.mark = 1
        return self.mark

    def interrupted(self, now_ms: int) -> int:
        """Record another event on the connection; returns the new mark."""
        self._look_anew(now_ms)
        self.mark = 1
        return self.mark


def _requests_in(data: memoryview) -> int:
    """Count the requests in `data`. The bytes after them were not checked yet and may be anything."""
    position, end, count = 0, len(data), 0
    while position < end:
        count += 1
        if end - position < _SIZE.size or (size := _SIZE.unpack_from(data, position)[0]) < 0:
            break
        position += size + _SIZE.size
    return count
