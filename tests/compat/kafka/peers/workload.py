"""What Ottla is made to write: batches as producers and the coordinator send them, from one seed."""

import random
from collections.abc import Iterable

from ottla.core.log.producers import AppendOrigin
from ottla.kernel import Codec, ControlType, Record, build_batch, build_end_txn_marker
from ottla.storage.partition_log import PartitionLog
from peers.scenario import START_MS

RECORDS_PER_BATCH = 8


class Sender:
    """One producer: plain, idempotent or transactional. Its records are printable, so that Kafka's tool shows them."""

    def __init__(self, producer_id: int = -1, *, transactional: bool = False, seed: int = 0) -> None:
        self._producer_id = producer_id
        self._transactional = transactional
        self._sequence = 0 if producer_id >= 0 else -1
        self._random = random.Random(seed)
        self._clock_ms = START_MS

    def fill(
        self, log: PartitionLog, batches: int, *, codecs: Iterable[Codec] = (Codec.NONE,), epoch: int | None = None
    ) -> None:
        """Send batches one second apart, through the codecs in turn."""
        cycle = list(codecs)
        for number in range(batches):
            self.send(log, self._records(), codec=cycle[number % len(cycle)], epoch=epoch)
            self._clock_ms += 1000

    def send(
        self, log: PartitionLog, records: list[Record], *, codec: Codec = Codec.NONE, epoch: int | None = None
    ) -> None:
        batch = build_batch(
            records,
            codec=codec,
            producer_id=self._producer_id,
            producer_epoch=0 if self._producer_id >= 0 else -1,
            base_sequence=self._sequence,
            transactional=self._transactional,
        )
        log.append(bytearray(batch), log.state.epochs.latest if epoch is None else epoch)
        if self._sequence >= 0:
            self._sequence += len(records)

    def end(self, log: PartitionLog, *, commit: bool) -> None:
        """The marker that the coordinator writes."""
        marker = build_end_txn_marker(
            ControlType.COMMIT if commit else ControlType.ABORT,
            coordinator_epoch=0,
            timestamp=self._clock_ms,
            producer_id=self._producer_id,
            producer_epoch=0,
        )
        log.append(bytearray(marker), log.state.epochs.latest, origin=AppendOrigin.COORDINATOR)

    def keyed(self, log: PartitionLog, keys: range, *, after_ms: int = 1000, tombstone: bool = False) -> None:
        """One record per key, some time after the last."""
        self._clock_ms += after_ms
        self.send(
            log,
            [
                Record(
                    number,
                    self._clock_ms + number,
                    b"key-%d" % key,
                    None if tombstone else b"%d at %d" % (key, self._clock_ms),
                    (("at", b"%d" % self._clock_ms),),
                )
                for number, key in enumerate(keys)
            ],
        )

    def _records(self) -> list[Record]:
        records = []
        for number in range(RECORDS_PER_BATCH):
            chance = self._random.random()
            records.append(
                Record(
                    number,
                    self._clock_ms + 10 * number - self._random.randrange(30),
                    None if chance < 0.1 else b"key-%d" % self._random.randrange(20),
                    None if chance > 0.95 else b"ottla " * 10 + self._random.randbytes(4).hex().encode(),
                    (("trace", b"\x00\x01"), ("none", None)) if chance < 0.4 else (),
                )
            )
        return records


def interleaved_transactions(log: PartitionLog, first_id: int, rounds: int) -> None:
    """Two producers whose transactions overlap, commit and abort; a third leaves one open."""
    steady, wavering, idle = (
        Sender(first_id + number, transactional=True, seed=first_id + number) for number in range(3)
    )
    for number in range(rounds):
        steady.fill(log, 2)
        wavering.fill(log, 3)
        steady.end(log, commit=number % 3 != 2)
        wavering.fill(log, 1)
        wavering.end(log, commit=number % 2 == 0)
    idle.fill(log, 1)
    steady.fill(log, 1)
    steady.end(log, commit=False)
