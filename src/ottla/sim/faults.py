"""What goes wrong on a simulated disk, and when.

A fault is a rule: which calls it matches (operation, end of the path), when it strikes among those (at the nth, or by
chance), and what it does: fail with an error number, or take time. The first rule that strikes wins.
"""

import errno
from dataclasses import dataclass, field
from random import Random

EIO = errno.EIO
ENOSPC = errno.ENOSPC
EMFILE = errno.EMFILE

READS = ("read", "size", "exists", "list", "scan", "modified_ms", "free_bytes")
"""Operations that leave the disk as it was. A crash before one of them is a crash before the next change."""

GROWS = ("write", "truncate", "open", "make_directory", "rename", "set_modified_ms")
"""Operations for which a full disk is an excuse."""

OPENS = ("open", "sync_directory", "list", "scan", "lock")
"""Operations that need a descriptor."""


class PowerLoss(BaseException):
    """The machine is off. Not an `Exception`: no handler of errors may survive it."""


@dataclass(slots=True)
class Fault:
    """One rule. `nth` counts matching calls from 1; `lasting` keeps striking after it; `rate` strikes by chance."""

    error: int = 0  # of `errno`; 0 when the call only takes long
    operations: tuple[str, ...] = ()  # none named: every operation
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
