"""Whether a process still runs, by its number and its start time, because process numbers are reused."""

import os

_STARTED = 19  # Field 22 of /proc/PID/stat, counted after the name in brackets, which may contain blanks.


def process_started(pid: int) -> float | None:
    """The start time of a process, in the system's own unit; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return float(file.read().rpartition(")")[2].split()[_STARTED])
    except FileNotFoundError:
        pass
    except (OSError, ValueError, IndexError):
        return None
    return 0.0 if not os.path.isdir("/proc/self") and _exists(pid) else None


def is_running(pid: int, started: float) -> bool:
    found = process_started(pid)
    return found is not None and found == started


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
