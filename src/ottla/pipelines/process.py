"""Whether the process that wrote something down still runs: its number alone would not tell, numbers are used again."""

import os

_STARTED = 19  # The 22nd field of /proc/PID/stat; the first two are cut off with the name, which may hold blanks.


def process_started(pid: int) -> float | None:
    """Something that two processes with one number differ in; None where there is no such process."""
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
