"""Safety checks of the node, each taken out by itself. Code that moves one of them changes this list with it."""

from mutate import Mutant

CONNECTION = "ottla.broker.connection"
PARTITION = "ottla.broker.partition"
PRODUCE = "ottla.broker.handlers.produce"
QUORUM = "ottla.broker.quorum"
PRODUCERS = "ottla.core.log.producers"

MUTANTS = [
    # Writing.
    Mutant(
        "duplicates-appended",
        PRODUCERS,
        "if origin is Origin.CLIENT and (duplicate := _find_duplicate(known, header)):",
        "if False and (duplicate := _find_duplicate(known, header)):",
        "a batch sent again is refused or stands twice",
    ),
    Mutant("sequence-unchecked", PRODUCERS, "self._check_sequence(known, header, offset)", "pass", "gaps accepted"),
    Mutant(
        "sequences-lost-on-restart",
        PRODUCERS,
        "restored.by_id = {producer.producer_id: producer for producer in producers}",
        "restored.by_id = {}",
        "a node that comes back has forgotten its producers",
    ),
    Mutant("acknowledged-before-sync", PRODUCE, "if acks and partition.must_sync:", "if False:", "acks taken back"),
    Mutant(
        "storage-error-swallowed",
        PRODUCE,
        "if refusal is not None:",
        "if False:",
        "an answer that the disk cannot keep is given all the same",
    ),
    # Reading.
    Mutant(
        "readable-before-sync",
        PARTITION,
        "elif not appended.duplicate:",
        "if not appended.duplicate:",
        "reads taken back",
    ),
    Mutant(
        "recovered-readable-before-sync",
        PARTITION,
        "log.advance_high_watermark(log.recovery_point)",
        "log.advance_high_watermark(log.end_offset)",
        "what a killed process left is read before it is synced",
    ),
    Mutant(
        "fetch-above-watermark",
        PARTITION,
        "upper = self.last_stable_offset if committed_only else self.high_watermark",
        "upper = self.log.log.end_offset",
        "what may be lost is read",
    ),
    Mutant("waiter-never-woken", PARTITION, "waiter.grown(max(size, 1))", "pass", "long polls end by time only"),
    Mutant(
        "waiter-left-behind",
        "ottla.broker.waiters",
        "self.wake()  # Also when the connection is gone.",
        "pass",
        "waiters of clients that are gone pile up",
    ),
    # Connections.
    Mutant(
        "answers-out-of-order",
        CONNECTION,
        "while self._open and not self._closed and (first := self._open[0].answer) is not None:",
        "self._open.remove(waiting), self._open.appendleft(waiting)\n"
        "        while self._open and not self._closed and (first := self._open[0].answer) is not None:",
        "an answer passes those before it",
    ),
    Mutant(
        "half-frame-lost",
        CONNECTION,
        "own[: self._filled] = rest",
        "pass",
        "garbage is read",
    ),
    Mutant(
        "shared-buffer-kept",
        CONNECTION,
        "own[: self._filled] = rest\n        self._own = own",
        "own[: self._filled] = rest\n        self._own = rest.obj if rest.obj is self.node.receive_buffer.obj else own",
        "the buffer is used again while half a frame is in it",
    ),
    Mutant(
        "no-back-pressure",
        CONNECTION,
        "return len(self._open) >= _OPEN_REQUESTS_MAX or self._outlet.queued_bytes >= _QUEUED_BYTES_MAX",
        "return False",
        "a client that does not read fills the memory",
    ),
    # Metadata.
    Mutant(
        "metadata-not-synced",
        QUORUM,
        "await self._directory.disk.in_thread(flush.run)",
        "pass",
        "topics that were made are gone after a power loss",
    ),
    Mutant("epoch-not-raised", QUORUM, "self._snapshot.epoch, 0) + 1", "self._snapshot.epoch, 1)", "two in one"),
    Mutant(
        "served-before-registered",
        "ottla.broker.node",
        "        await self._register()\n",
        "        asyncio.get_running_loop().call_later(0.5, lambda: self.spawn(self._register()))\n",
        "the first client is told that no broker is there",
    ),
    Mutant(
        "log-made-anew",
        "ottla.broker.partitions",
        "if not is_new and (unusable := self._store.unusable):",
        "if False and (unusable := self._store.unusable):",
        "an empty log takes the place of one whose disk is offline",
    ),
    Mutant(
        "topic-id-not-synced",
        "ottla.storage.partition_files",
        "for name in names if name == files.PARTITION_METADATA]",
        "for name in names if False]",
        "after a kill and a power loss nobody knows whose log it is",
    ),
]

FOUND_BY = {
    "recovered-readable-before-sync": 36,
    "waiter-never-woken": 22,
    "shared-buffer-kept": 32,
    "log-made-anew": 15,
    "topic-id-not-synced": 14,
    "no-back-pressure": 12,
}
"""A seed that found it last time, played first."""
