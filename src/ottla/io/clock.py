"""The machine's clocks."""

import time


class SystemClock:
    """The `Clock` port on this machine."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
