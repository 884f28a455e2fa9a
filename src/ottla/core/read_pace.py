"""How many bytes must wait before a connection is read.

A producer that is slower than the broker wakes it for each of its batches, and waking costs more than a batch. Where
requests stream in, the kernel may wake the broker when some of them have arrived, as network cards moderate their
interrupts. Latency is not given away for that:

Rule 1: only a client that sends on without waiting for answers is made to wait, and always for fewer requests than it
        was seen to have open: one who has sent all that it may waits for the broker, who must not wait for it.
Rule 2: at the present rate no request waits longer for the last of its company than `PATIENCE_MS`. A client whose
        requests are small does not wait for its batches to fill: it wants its answers soon, and is read at once.
Rule 3: a client that pauses is not kept waiting. As long as there is a mark, somebody looks at short intervals; who was
        not read since the look before loses its mark, and with that whatever has come is read.
Rule 4: a client that pauses again and again between the requests of a company does so because of the mark: one request
        less is waited for, and one more not tried again for `RETRY_MS`. A few pauses are anybody's.
Rule 5: whatever is not the stream (another request, a pause of the broker's) ends it, and it has to be seen again.
"""

from struct import Struct

PATIENCE_MS = 0.5
WINDOW_MS = 16
"""So long that a clock of milliseconds tells the rate well."""
TOGETHER_MIN = 2
"""Reads of a window that bring more than one request: less could be chance."""
REQUEST_MIN = 1 << 12
"""In bytes."""
REQUESTS_MAX = 4
ENOUGH_TOGETHER = 2 * REQUESTS_MAX
"""A client that is faster than the broker brings as many by itself, and nothing is gained by a mark."""
MARK_MAX = 1 << 16
"""Below half of every usual receive buffer: beyond that the kernel lowers the mark, or the window."""
PAUSE_BLAME = 8
"""Reads without a pause in between that make one forgotten."""
BLAME_MAX = 3 * PAUSE_BLAME
RETRY_MS = 10_000
_SIZE = Struct(">i")


class ReadPace:
    """Of one connection, whose requests are much alike."""

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
        """The connection is to be read when so many bytes wait."""
        self._open_seen = 1
        """The most requests that arrived in one read, one that only began included."""
        self._ceiling = REQUESTS_MAX
        self._retry_ms = now_ms
        self._blame = 0
        self._look_anew(now_ms)

    def _look_anew(self, now_ms: int) -> None:
        self._requests, self._wanted = 1, 1
        self._since_ms = now_ms
        self._reads, self._bytes, self._together = 0, 0, 0

    def took(self, now_ms: int, data: memoryview) -> int:
        """These requests were read, and maybe the beginning of another; the mark from now on."""
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
        """A window is over."""
        if self._ceiling < REQUESTS_MAX and now_ms >= self._retry_ms:
            self._ceiling += 1
            self._retry_ms = now_ms + RETRY_MS
        company = PATIENCE_MS * self._bytes / (now_ms - self._since_ms)
        is_stream = self._together >= TOGETHER_MIN and self._bytes < ENOUGH_TOGETHER * request * self._reads
        self._look_anew(now_ms)
        half = request // 2
        requests = min(1 + int(company / request), self._open_seen - 1, self._ceiling, (MARK_MAX + half) // request)
        if is_stream and requests > 1 and request >= REQUEST_MIN:
            # The last one may be somewhat smaller than the others.
            self._requests, self._wanted = requests, requests * request - half

    def unread(self, now_ms: int, waiting_bytes: int) -> int:
        """There was no read between two looks, and so many bytes wait; the mark from now on."""
        if waiting_bytes >= self.mark:
            return self.mark  # It is the broker who is late.
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
        """Something else happens on the connection; the mark from now on."""
        self._look_anew(now_ms)
        self.mark = 1
        return self.mark


def _requests_in(data: memoryview) -> int:
    """What follows those that were taken may be anything: nobody has looked at it yet."""
    position, end, count = 0, len(data), 0
    while position < end:
        count += 1
        if end - position < _SIZE.size or (size := _SIZE.unpack_from(data, position)[0]) < 0:
            break
        position += size + _SIZE.size
    return count
