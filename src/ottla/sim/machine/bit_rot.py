"""Flips bits of files at rest.

Base offset and leader epoch of a stored batch are outside its CRC, because the broker sets them. No reader can detect a
change there, so these fields are not flipped.
"""

import struct
from itertools import pairwise
from random import Random

from ottla.core.log import files
from ottla.sim.machine.disk import SimDisk

SUFFIXES = (files.LOG, files.LOG, *files.INDEXES, files.SNAPSHOT, files.SEGMENT_SUMMARY)
_BASE_OFFSET, _LEADER_EPOCH, _HEADER = range(8), range(12, 16), range(61)


def flip_bits(disk: SimDisk, random: Random) -> list[str]:
    """Flip one to three bits in files of one kind; returns which."""
    suffix = random.choice(SUFFIXES)
    candidates = [
        path
        for path, data in disk.contents().items()
        # Directories that were set aside are not read.
        if path.endswith(suffix) and data and files.SET_ASIDE not in path
    ]
    flipped = []
    for _ in range(random.randint(1, 3)):
        if not candidates:
            break
        path = random.choice((candidates[-1], random.choice(candidates)))
        data = disk.contents()[path] or b""
        position = _position(data, random) if suffix == files.LOG else random.randrange(len(data))
        bit = position * 8 + random.randrange(8)
        disk.flip_bit(path, bit)
        flipped.append(f"{path} bit {bit}")
    return flipped


def _position(data: bytes, random: Random) -> int:
    """A byte of a log file covered by a CRC, or of the length; in a header as often as in the records."""
    starts = [0]
    while starts[-1] + 12 <= len(data):
        length = struct.unpack_from(">i", data, starts[-1] + 8)[0]
        starts.append(min(starts[-1] + max(length, 0) + 12, len(data)))  # The length may have been flipped before.
    batches = list(pairwise(starts))
    start, end = random.choice((batches[-1], random.choice(batches)))
    within = random.choice((_HEADER, range(_HEADER.stop, end - start)))
    covered = [at for at in within or _HEADER if at not in _BASE_OFFSET and at not in _LEADER_EPOCH]
    return min(start + random.choice(covered), len(data) - 1)
