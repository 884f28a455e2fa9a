"""Fault rules of a simulated disk.

A fault has conditions (operation, end of the path), a moment (at the nth matching call, or by probability), and an
effect: fail with an error number, or take time. The first matching rule wins.
"""

import errno
from dataclasses import dataclass, field
from random import Random

EIO = errno.EIO
ENOSPC = errno.ENOSPC
EMFILE = errno.EMFILE

READS = ("read", "size", "exists", "list", "scan", "modified_ms", "free_bytes")
"""Operations that do not change the disk. A crash before one is equivalent to a crash before the next change."""

GROWS = ("write", "truncate", "open", "make_directory", "rename", "set_modified_ms")
"""Operations that may fail on a full disk."""

OPENS = ("open", "sync_directory", "list", "scan", "lock")
"""Operations that need a descriptor."""


class PowerLoss(BaseException):
    """The machine is off. Not an `Exception`, so that no error handler survives it."""


@dataclass(slots=True)
class Fault:
    """One rule. `nth` counts matching calls from 1; `lasting` continues after it; `rate` is a probability."""

    error: int = 0  # of `errno`; 0 if the call only takes long
    operations: tuple[str, ...] = ()  # empty: every operation
    suffix: str = ""
    nth: int = 0
    lasting: bool = False
    rate: float = 0.0
    delay_ms: float = 0.0
    matched: int = field(default=0, init=False)

    def strikes(self, operation: str, path: str, random: Random) -> bool:
        if (self.operations and operation not in self.operations) or not path.endswith(self.suffix):
            return False
        if self.error == ENOSPC and operation not in GROWS:
            return False
        if self.error == EMFILE and operation not in OPENS:
            return False
        self.matched += 1
        if self.nth and (self.matched == self.nth or (self.lasting and self.matched > self.nth)):
            return True
        return self.rate > 0 and random.random() < self.rate
