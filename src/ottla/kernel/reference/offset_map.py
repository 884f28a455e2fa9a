"""The last offset of every key in bounded memory, for the compaction of the dirty part of a log.

Rule 1: an entry takes 24 bytes, 16 for the key's MD5 and 8 for the offset, so that `log.cleaner.dedupe.buffer.size`
        holds as many keys as in Kafka, however long they are.
Rule 2: open addressing: first the digest's successive integers, then the following slots.
Rule 3: the map accepts nothing past `load_factor` of the slots: a full map ends the round of cleaning, and the next
        round continues there.
Rule 4: two keys with the same MD5 count as one. MD5 is not used for security here: a client that can write both keys
        can write either value.
"""

from hashlib import md5
from struct import Struct
from typing import Final

from ottla.kernel.batch import Buffer

ENTRY_SIZE: Final = 24
_DIGEST_SIZE: Final = 16
_OFFSET: Final = Struct(">q")
_EMPTY: Final = bytes(_DIGEST_SIZE)
_PROBES_IN_DIGEST: Final = _DIGEST_SIZE - 3


class OffsetMap:
    """Maps key digests to offsets, in one block of memory."""

    def __init__(self, memory_bytes: int, load_factor: float = 0.9) -> None:
        self.slots = memory_bytes // ENTRY_SIZE
        self.keys_max = int(self.slots * load_factor)
        if self.keys_max < 1:
            raise ValueError(
                f"{memory_bytes} bytes at load factor {load_factor} hold no key; raise "
                "log.cleaner.dedupe.buffer.size (it is divided by log.cleaner.threads)"
            )
        try:
            self._bytes = bytearray(self.slots * ENTRY_SIZE)
        except MemoryError:
            raise ValueError(
                f"there is no memory for {memory_bytes} bytes of keys; lower log.cleaner.dedupe.buffer.size"
            ) from None
        self._keys = 0
        self.latest_offset = -1  # The last offset that was added; maintained by the caller.

    def __len__(self) -> int:
        return self._keys

    @property
    def full(self) -> bool:
        return self._keys >= self.keys_max

    def put(self, key: Buffer, offset: int) -> bool:
        """Set the key's latest offset. Returns False, without a change, if the map is full."""
        if self.full:  # As in Kafka, even for a known key: the caller stops at the same record either way.
            return False
        digest = md5(key, usedforsecurity=False).digest()
        position, known = self._find(digest)
        self._bytes[position : position + ENTRY_SIZE] = digest + _OFFSET.pack(offset)
        if not known:
            self._keys += 1
        self.latest_offset = offset
        return True

    def get(self, key: Buffer) -> int:
        """The latest offset of `key`; -1 if there is none."""
        position, known = self._find(md5(key, usedforsecurity=False).digest())
        return _OFFSET.unpack_from(self._bytes, position + _DIGEST_SIZE)[0] if known else -1

    def _find(self, digest: bytes) -> tuple[int, bool]:
        """The slot of the digest's entry, or where it would go; and whether it is there."""
        slots, entries = self.slots, self._bytes
        for at in range(_PROBES_IN_DIGEST):
            position = int.from_bytes(digest[at : at + 4], "big") % slots * ENTRY_SIZE
            found = entries[position : position + _DIGEST_SIZE]
            if found in (digest, _EMPTY):
                return position, found == digest
        for _ in range(slots):
            position = (position + ENTRY_SIZE) % len(entries)
            found = entries[position : position + _DIGEST_SIZE]
            if found in (digest, _EMPTY):
                return position, found == digest
        return -1, False  # Every slot is taken by other digests.
