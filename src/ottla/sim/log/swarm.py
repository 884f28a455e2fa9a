"""The configuration of one seed: settings, mix of operations, faults.

Swarm testing: a seed leaves most things out. Many runs that each do a few things often find more than runs in which
everything happens. Some runs have no faults, so that a failure there is not caused by the disk.
"""

import errno
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from ottla.sim.log.history import Policy
from ottla.sim.machine.faults import EIO, EMFILE, ENOSPC, Fault

LONG_MAX = str(2**63 - 1)
SECOND, DAY = 1_000, 86_400_000

OPERATIONS = {
    "append": 10.0,
    "send_again": 1.0,
    "send_badly": 1.0,
    "end_transaction": 2.0,
    "advance_watermark": 3.0,
    "flush": 1.0,
    "roll": 0.7,
    "retain": 1.0,
    "delete_records": 0.5,
    "compact": 1.0,
    "truncate": 0.5,
    "restart_empty": 0.05,
    "new_leader": 0.5,
    "read": 3.0,
    "read_committed": 2.0,
    "look_up_time": 1.0,
    "pass_time": 1.5,
    "jump_clock": 0.3,
    "checkpoint": 0.7,
    "reopen": 0.5,
    "kill": 0.3,
}
"""The operations, and their weights if a seed has them."""

ALWAYS = ("append", "advance_watermark", "read")
WHERE_COMPACTED = ("compact", "roll", "end_transaction", "read_committed")
WHERE_EXPIRING = ("retain", "pass_time")
"""In a log that is compacted and expires, retention removes segments that the cleaner is about to read."""


@dataclass(frozen=True, slots=True)
class Swarm:
    topic: dict[str, str]
    broker: dict[str, str]
    policy: Policy
    weights: dict[str, float]
    operations: int
    keys: int
    records_max: int
    codecs: tuple[int, ...]
    faults: tuple[Fault, ...]
    crash_steps: int
    """A power loss about this many disk steps after each start; 0 for never."""
    rot: bool
    """Whether the run ends with flipped bits."""
    interleaving: float
    """The probability that work in a thread pauses between its steps while the loop runs."""

    @property
    def flushes_every_append(self) -> bool:
        return self.topic["flush.messages"] == "1"

    @property
    def stamps_append_time(self) -> bool:
        return self.topic["message.timestamp.type"] == "LogAppendTime"

    def replaced(self, **changes: Any) -> "Swarm":
        """The same with some changes; derived settings follow."""
        changed = replace(self, **changes)
        return replace(changed, policy=_policy(changed.topic, changed.broker))

    def parts(self) -> list[str]:
        """The names of the parts that can be left out (`reduced`), the most likely causes first."""
        faults = [f"fault-{number}" for number in range(len(self.faults))]
        others = [name for name in self.weights if name not in ALWAYS]
        return [*faults, *(["crashes"] if self.crash_steps else []), *(["rot"] if self.rot else []), *others]

    def reduced(self, without: tuple[str, ...]) -> "Swarm":
        if not without:
            return self
        return replace(
            self,
            faults=tuple(one for number, one in enumerate(self.faults) if f"fault-{number}" not in without),
            crash_steps=0 if "crashes" in without else self.crash_steps,
            rot=self.rot and "rot" not in without,
            weights={name: weight for name, weight in self.weights.items() if name not in without},
        )

    def __str__(self) -> str:
        settings = " ".join(f"{name}={value}" for name, value in (self.topic | self.broker).items())
        faults = " ".join(_name_of(fault) for fault in self.faults) or "none"
        return f"{settings}; faults {faults}; crash after {self.crash_steps or 'never'}; plays {','.join(self.weights)}"


def draw(random: Random) -> Swarm:
    cleanup = random.choice(("delete", "delete", "compact", "compact,delete"))
    topic = {
        "internal.segment.bytes": random.choice(("1500", "4000", "4000", "20000", "1000000")),
        "index.interval.bytes": random.choice(("0", "200", "4096")),
        "segment.index.bytes": random.choice(("60", "10485760", "10485760")),
        "segment.ms": random.choice(("5000", str(7 * DAY), str(7 * DAY))),
        "flush.messages": random.choice(("1", "7", LONG_MAX)),
        "cleanup.policy": cleanup,
        "retention.ms": random.choice(("-1", "20000", "4000")),
        "retention.bytes": random.choice(("-1", "6000", "2000")),
        "delete.retention.ms": random.choice(("0", "5000")),
        "min.compaction.lag.ms": random.choice(("0", "0", "3000")),
        "min.cleanable.dirty.ratio": random.choice(("0.0", "0.0", "0.5")),
        "file.delete.delay.ms": random.choice(("0", "3000")),
        "message.timestamp.type": random.choice(("CreateTime", "CreateTime", "LogAppendTime")),
        "compression.type": random.choice(("producer", "producer", "producer", "lz4", "uncompressed")),
        "message.timestamp.after.max.ms": LONG_MAX,
    }
    broker = {
        "producer.id.expiration.ms": random.choice(("30000", str(DAY), str(DAY))),
        "log.cleaner.dedupe.buffer.size": random.choice(("240", "24000", "24000")),  # 10 or 1,000 keys
        "log.cleaner.io.max.bytes.per.second": random.choice(("1000000000", "1000")),  # It rests between groups.
    }
    always: tuple[str, ...] = ALWAYS
    if "compact" in cleanup:
        always += WHERE_COMPACTED + (WHERE_EXPIRING if "delete" in cleanup else ())
    return Swarm(
        topic=topic,
        broker=broker,
        policy=_policy(topic, broker),
        weights=_weights(random, always),
        operations=random.choice((40, 80, 120)),
        keys=random.choice((3, 12, 200)),
        records_max=random.choice((1, 4, 20)),
        codecs=random.choice(((0,), (0, 1, 2, 3, 4), (random.randrange(5),))),
        faults=_faults(random),
        crash_steps=random.choice((0, 40, 150, 400)),
        rot=random.random() < 0.3,
        interleaving=random.choice((0.0, 0.5, 1.0)),
    )


def _policy(topic: dict[str, str], broker: dict[str, str]) -> Policy:
    return Policy(
        compact="compact" in topic["cleanup.policy"],
        delete="delete" in topic["cleanup.policy"],
        retention_ms=int(topic["retention.ms"]),
        retention_bytes=int(topic["retention.bytes"]),
        delete_retention_ms=int(topic["delete.retention.ms"]),
        min_compaction_lag_ms=int(topic["min.compaction.lag.ms"]),
        producer_expiration_ms=int(broker["producer.id.expiration.ms"]),
    )


def _weights(random: Random, always: tuple[str, ...]) -> dict[str, float]:
    played = random.choice((0.3, 0.6, 0.9))
    return {
        name: weight * random.choice((0.5, 1.0, 3.0))
        for name, weight in OPERATIONS.items()
        if name in always or random.random() < played
    }


def _faults(random: Random) -> tuple[Fault, ...]:
    kinds = (
        Fault(EIO, rate=0.001),
        Fault(EIO, operations=("sync", "sync_directory"), rate=0.02),
        Fault(EIO, operations=("write",), suffix=".log", rate=0.02),
        Fault(EIO, operations=("rename", "remove"), rate=0.02),
        Fault(EIO, operations=("read",), rate=0.005),
        Fault(ENOSPC, rate=0.005),
        Fault(EMFILE, rate=0.02),
        Fault(EMFILE, rate=0.2, operations=("sync_directory",)),
        Fault(operations=("sync",), rate=0.2, delay_ms=2_000),
    )
    if random.random() < 0.6:
        return ()
    return tuple(fault for fault in kinds if random.random() < 0.3)


def _name_of(fault: Fault) -> str:
    what = errno.errorcode.get(fault.error, "slow")
    return f"{what}:{'/'.join(fault.operations) or 'any'}{fault.suffix}@{fault.rate}"
