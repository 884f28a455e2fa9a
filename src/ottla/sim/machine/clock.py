"""Virtual time, which advances only when it is moved."""

# A round time in 2033, far from zero, so that arithmetic with a wrong epoch is noticed.
_START_MS = 2_000_000_000_000


class SimClock:
    """The `Clock` of a simulated machine. The loop moves it from timer to timer; faults make the wall clock jump or
    drift."""

    def __init__(self, start_ms: int = _START_MS) -> None:
        self.seconds = 0.0  # since the machine started; what `SimLoop.time` returns
        self._wall_start_ms = start_ms
        self._drift = 0.0
        self._drifts_from_ms = 0

    def wall_ms(self) -> int:
        now_ms = self.monotonic_ms()
        gained_ms = int((now_ms - self._drifts_from_ms) * self._drift) if self._drift else 0
        return self._wall_start_ms + now_ms + gained_ms

    def monotonic_ms(self) -> int:
        return int(self.seconds * 1000)

    def advance(self, ms: float) -> None:
        """Let time pass, as a slow disk does."""
        if ms < 0:
            raise ValueError(f"time cannot pass by {ms} ms; use `jump` to set the wall clock back")
        self.seconds += ms / 1000

    def jump(self, ms: int) -> None:
        """Set the wall clock forward or back; the monotonic clock is not affected."""
        self._wall_start_ms += ms

    def drift(self, rate: float) -> None:
        """From now on the wall clock gains `rate` seconds in each second; a negative rate loses them."""
        if rate <= -1:
            raise ValueError(f"a clock that loses {-rate} of a second in a second goes backwards; use `jump`")
        now_ms = self.monotonic_ms()
        self._wall_start_ms = self.wall_ms() - now_ms
        self._drift, self._drifts_from_ms = rate, now_ms
