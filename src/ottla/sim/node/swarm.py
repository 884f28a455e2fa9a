"""The configuration of one seed: the node's settings, its topics, its clients, and the faults.

Swarm testing: a seed leaves most things out; some have no faults, so that a failure there is not caused by them.
"""

from dataclasses import dataclass, replace
from random import Random

from ottla.sim.machine.faults import EIO, Fault
from ottla.sim.machine.network import Weather

CALM = Weather()
LONG_MAX = str(2**63 - 1)
NEVER = 1e9
COORDINATED = ("transactional", "group_consumer", "transformer")
"""Clients that need a coordinator, for their group, their transactions or both."""
_COORDINATED = 0.5
"""The share of seeds that have some of them."""
_COORDINATION = 1 << 32
_HAZARDS = 1 << 33
_RARITIES = 1 << 34
_LULLS = 1 << 35
TABLE = "table"

STATIC = "static members"
OLD_COORDINATORS = "old coordinators"
EXPIRING_OFFSETS = "expiring offsets"
AGING = "epochs near their end"
UNSYNCED = "power lost before a sync"
TABLE_WRITERS = "transactions in a table"
_HAZARDOUS = 0.6
"""The share of seeds with coordination that have some of these."""
_RARE = 0.4
"""The share of seeds with features added last; the other seeds stay unchanged."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic as it is created; these properties never change."""

    name: str
    partitions: int
    settings: dict[str, str]
    fleeting: bool = False
    """Deleted and re-created under the same name."""
    kept: bool = False
    """Nothing is removed from it except by the cleaner."""

    @property
    def is_synced(self) -> bool:
        """Whether an acknowledgement survives a power loss."""
        return self.settings["flush.messages"] == "1"

    @property
    def compacts(self) -> bool:
        return "compact" in self.settings["cleanup.policy"]

    @property
    def retention_ms(self) -> int:
        return int(self.settings["retention.ms"]) if "delete" in self.settings["cleanup.policy"] else -1


@dataclass(frozen=True, slots=True)
class NodeSwarm:
    broker: dict[str, str]
    topics: tuple[TopicPlan, ...]
    clients: tuple[str, ...]
    """Kinds of clients, as many as are named; see `world.ACTORS`."""
    seconds: float
    weather: Weather
    faults: tuple[Fault, ...]
    crash_steps: int
    """Power is lost about this many disk steps after a start; 0 for never."""
    mishaps: dict[str, float]
    """The mishaps of the node, with their average interval in seconds."""
    rot: bool
    protocol: str = "classic"
    """The protocol of groups: `classic`, `consumer` or `mixed`."""
    hazards: tuple[str, ...] = ()
    """Rare events of coordinators."""
    interleaving: float = 0.0
    """The probability that work in a thread is interleaved with the loop's work."""
    lull_s: float = 0.0
    """In the middle of the run the clients pause for so long: sessions, transactions and connections time out,
    retention and the cleaner find nothing new, and then all clients return at once."""

    def parts(self) -> list[str]:
        """The names of the parts that can be left out (`reduced`): mishaps and faults first, then clients."""
        faults = [f"fault-{number}" for number in range(len(self.faults))]
        if UNSYNCED in self.hazards:  # Without syncs other invariants apply after a power loss.
            mishaps = [kind for kind in self.mishaps if kind != "lose_power"]
        else:
            mishaps = list(self.mishaps)
        hazards = [_slug(one) for one in self.hazards if one not in (UNSYNCED, EXPIRING_OFFSETS)]
        single = {
            "crashes": self.crash_steps,
            "weather": self.weather != CALM,
            "interleaving": self.interleaving,
            "lull": self.lull_s,
            "rot": self.rot,
        }
        clients = [f"{kind}-{number}" for number, kind in enumerate(self.clients)]
        return [*mishaps, *faults, *(name for name, there in single.items() if there), *hazards, *clients]

    def reduced(self, without: tuple[str, ...]) -> "NodeSwarm":
        if not without:
            return self
        return replace(
            self,
            mishaps={kind: every for kind, every in self.mishaps.items() if kind not in without},
            faults=tuple(one for number, one in enumerate(self.faults) if f"fault-{number}" not in without),
            crash_steps=0 if "crashes" in without else self.crash_steps,
            weather=CALM if "weather" in without else self.weather,
            interleaving=0.0 if "interleaving" in without else self.interleaving,
            lull_s=0.0 if "lull" in without else self.lull_s,
            rot=self.rot and "rot" not in without,
            hazards=tuple(one for one in self.hazards if _slug(one) not in without),
            clients=tuple(kind for number, kind in enumerate(self.clients) if f"{kind}-{number}" not in without),
        )

    def __str__(self) -> str:
        topics = "; ".join(
            f"{topic.name}/{topic.partitions} " + " ".join(f"{name}={value}" for name, value in topic.settings.items())
            for topic in self.topics
        )
        broker = " ".join(f"{name}={value}" for name, value in self.broker.items())
        return (
            f"{broker}; {topics}; clients {','.join(self.clients)}; {self.weather}; faults {len(self.faults)}; "
            f"crash after {self.crash_steps or 'never'}; mishaps {self.mishaps}; interleaving {self.interleaving}; "
            f"lull {self.lull_s:g} s; groups {self.protocol}; "
            f"hazards {','.join(self.hazards) or 'none'}"
        )


def _slug(hazard: str) -> str:
    return hazard.replace(" ", "-")


def draw(random: Random, seed: int = 0) -> NodeSwarm:
    swarm = _draw(random)
    # Separate randomness: a seed without coordination stays unchanged.
    coordination = Random(seed + _COORDINATION)
    if coordination.random() < _COORDINATED:
        swarm, hazards = _with_coordination(swarm, coordination), Random(seed + _HAZARDS)
        swarm = _with_hazards(swarm, hazards) if hazards.random() < _HAZARDOUS else swarm
    rarities = Random(seed + _RARITIES)
    swarm = _with_rarities(swarm, rarities) if rarities.random() < _RARE else swarm
    return replace(swarm, lull_s=Random(seed + _LULLS).choice((0.0, 15.0, 45.0, 90.0)))


def _draw(random: Random) -> NodeSwarm:
    topics = [_topic(random, f"stable-{number}", fleeting=False) for number in range(random.choice((1, 1, 2)))]
    if random.random() < 0.5:
        topics.append(_topic(random, "fleeting", fleeting=True))
    mishaps = _mishaps(random)
    return NodeSwarm(
        broker=_broker(random),
        topics=tuple(topics),
        clients=_clients(random, with_fleeting=any(topic.fleeting for topic in topics)),
        seconds=random.choice((5, 10, 20)),
        weather=_weather(random),
        faults=_faults(random),
        crash_steps=random.choice((0, 0, 100, 300, 800)) if mishaps else 0,
        mishaps=mishaps,
        rot=random.random() < 0.25,
    )


def _broker(random: Random) -> dict[str, str]:
    return {
        "node.id": "1",
        "listeners": "PLAINTEXT://node:9092",
        "log.dirs": random.choice(("/data/a", "/data/a", "/data/a,/data/b")),
        "log.initial.task.delay.ms": "500",
        "log.retention.check.interval.ms": "3000",
        "log.cleaner.backoff.ms": random.choice(("1000", "4000")),
        "log.flush.offset.checkpoint.interval.ms": random.choice(("2000", "60000")),
        "log.flush.scheduler.interval.ms": random.choice(("3000", LONG_MAX)),
        "log.flush.interval.ms": random.choice(("3000", LONG_MAX)),
        "connections.max.idle.ms": random.choice(("8000", "600000")),
        "max.connections.per.ip": random.choice(("4", "2147483647")),
        "max.incremental.fetch.session.cache.slots": random.choice(("0", "1", "1000")),
        "metadata.log.max.record.bytes.between.snapshots": random.choice(("500", "4000", "20971520")),
        "log.cleaner.dedupe.buffer.size": "24000",  # 1,000 keys
        "message.max.bytes": "20000",
    }


def _topic(random: Random, name: str, *, fleeting: bool) -> TopicPlan:
    settings = {
        "flush.messages": random.choice(("1", "1", LONG_MAX)),
        "cleanup.policy": random.choice(("delete", "delete", "compact", "compact,delete")),
        "internal.segment.bytes": random.choice(("4000", "8000", "1000000")),
        "index.interval.bytes": random.choice(("0", "4096")),
        "retention.ms": random.choice(("-1", "-1", "8000")),
        "delete.retention.ms": random.choice(("0", "5000")),
        "min.cleanable.dirty.ratio": "0.0",
        "file.delete.delay.ms": random.choice(("0", "2000")),
        "message.timestamp.type": random.choice(("CreateTime", "CreateTime", "LogAppendTime")),
        "compression.type": random.choice(("producer", "producer", "producer", "zstd")),
    }
    return TopicPlan(name, random.choice((1, 2, 3)), settings, fleeting)


def _with_coordination(swarm: NodeSwarm, random: Random) -> NodeSwarm:
    """The same run with groups and transactions. They are as durable as the internal topics: with power losses
    everything is synced, except with `UNSYNCED`."""
    is_lossy = random.random() < 0.6
    topics = [
        replace(topic, settings=topic.settings | ({"flush.messages": "1"} if is_lossy else {}))
        for topic in swarm.topics
    ]
    topics += [_kept(random, name, is_lossy=is_lossy) for name in ("input", "output")]
    if random.random() < 0.5:
        topics.append(_table(random, is_lossy=is_lossy))
    kinds = [kind for kind in COORDINATED if random.random() < 0.6] or [random.choice(COORDINATED)]
    clients = [kind for kind in kinds for _ in range(random.choice((1, 2, 2, 3)))]
    broker = {
        "log.flush.interval.messages": "1" if is_lossy else LONG_MAX,
        "offsets.topic.num.partitions": random.choice(("1", "3")),
        "log.roll.ms": random.choice(("2000", "604800000")),  # So that coordinators' logs are cleaned.
        "transaction.state.log.num.partitions": random.choice(("1", "3")),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": random.choice(("1000", "5000")),
        "group.min.session.timeout.ms": "1000",
        "group.initial.rebalance.delay.ms": random.choice(("0", "1000")),
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": "3000",
        "group.consumer.min.heartbeat.interval.ms": "500",
        "group.consumer.heartbeat.interval.ms": "700",
        "group.consumer.assignment.interval.ms": random.choice(("0", "1000")),
    }
    lossless = {kind: every for kind, every in swarm.mishaps.items() if kind != "lose_power"}
    return replace(
        swarm,
        broker=swarm.broker | broker,
        protocol=random.choice(("classic", "consumer")),
        topics=tuple(topics),
        clients=(*_fewer(random, swarm.clients), *clients),
        faults=swarm.faults if is_lossy else (),
        crash_steps=swarm.crash_steps if is_lossy else 0,
        mishaps=swarm.mishaps if is_lossy else lossless,
    )


def _with_hazards(swarm: NodeSwarm, random: Random) -> NodeSwarm:
    """The same run with frequent expiration of old state."""
    hazards = [one for one in (STATIC, OLD_COORDINATORS, AGING) if random.random() < 0.6]
    broker = {
        "producer.id.expiration.check.interval.ms": "1000",
        "offsets.retention.check.interval.ms": "1000",
    }
    protocol = random.choice((swarm.protocol, "mixed"))
    if random.random() < 0.3:
        # Offsets of groups without members expire: only clients that can handle it take part.
        hazards.append(EXPIRING_OFFSETS)
        broker["offsets.retention.minutes"] = "1"
        clients = [kind for kind in swarm.clients if kind not in ("group_consumer", "transformer")]
        mishaps = swarm.mishaps | {"leap_clock": 6.0, "kill": 4.0}
        swarm = replace(swarm, clients=(*clients, "keeper", "keeper"), mishaps=mishaps)
    elif swarm.broker["log.flush.interval.messages"] != "1":
        # Each log loses its end separately: the rules of the histories say what still holds.
        hazards.append(UNSYNCED)
        swarm = replace(swarm, mishaps=swarm.mishaps | {"lose_power": random.choice((4.0, 10.0))})
    elif random.random() < 0.5:
        swarm = replace(swarm, clients=(*swarm.clients, "keeper"))
    if random.random() < 0.20:
        hazards.append(TABLE_WRITERS)
        broker["log.cleaner.backoff.ms"] = "1000"
        is_synced = swarm.broker["log.flush.interval.messages"] == "1"
        others = [topic for topic in swarm.topics if topic.name != TABLE]
        table = _table(random, is_lossy=is_synced)
        swarm = replace(swarm, topics=(*others, table), clients=(*swarm.clients, "transactional", "transactional"))
    return replace(swarm, broker=swarm.broker | broker, hazards=tuple(hazards), protocol=protocol)


def _with_rarities(swarm: NodeSwarm, random: Random) -> NodeSwarm:
    """The same run with rare events: each seed has one or two."""
    is_coordinated = any(kind in COORDINATED or kind == "keeper" for kind in swarm.clients)
    # State that a failing disk may lose must be synced, or irrelevant.
    bears_faults = not is_coordinated or swarm.broker["log.flush.interval.messages"] == "1"
    bears_losses = not is_coordinated or UNSYNCED in swarm.hazards
    has_spare_disk = "," in swarm.broker["log.dirs"]
    kinds = ["freeze", "cut_one_way", "drift_clock", "threads", "library", "overlap"]
    kinds += ["fill_disk", "use_up_files"] * bears_faults + ["empty_disk"] * (bears_losses and has_spare_disk)
    for kind in random.sample(kinds, random.choice((1, 1, 2))):
        match kind:
            case "threads":
                swarm = replace(swarm, interleaving=random.choice((0.3, 1.0)))
            case "library":
                swarm = _with_library(swarm, random, is_coordinated=is_coordinated)
            case "overlap":
                swarm = _with_overlap(swarm)
            case _:
                swarm = replace(swarm, mishaps=swarm.mishaps | {kind: random.choice((3.0, 6.0, 12.0))})
    return swarm


def _with_library(swarm: NodeSwarm, random: Random, *, is_coordinated: bool) -> NodeSwarm:
    """The same run with clients of Ottla's own library in addition."""
    kinds = ["library_admin", "library_producer", "library_consumer"]
    if is_coordinated:
        kinds += ["library_transactional", "library_transactional"]
        kinds += ["bare_committer"] * (EXPIRING_OFFSETS not in swarm.hazards)
    return replace(swarm, clients=(*swarm.clients, *random.sample(kinds, 2)))


def _with_overlap(swarm: NodeSwarm) -> NodeSwarm:
    """The same run with a cleaner that is so slow that retention runs during a cleaning."""
    topics = [
        topic
        if topic.kept
        else replace(
            topic,
            settings=topic.settings
            | {"cleanup.policy": "compact,delete", "retention.ms": "3000", "internal.segment.bytes": "4000"},
        )
        for topic in swarm.topics
    ]
    broker = {
        "log.cleaner.io.max.bytes.per.second": "2000",
        "log.cleaner.backoff.ms": "1000",
        "log.retention.check.interval.ms": "1000",
    }
    return replace(swarm, topics=tuple(topics), broker=swarm.broker | broker)


def _fewer(random: Random, clients: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out most other clients, which have their own seeds."""
    writers = [kind for kind in clients if kind in ("idempotent", "plain")][:1] or ["idempotent"]
    return (*writers, *(kind for kind in clients if kind not in writers and random.random() < 0.4))


def _kept(random: Random, name: str, *, is_lossy: bool) -> TopicPlan:
    settings = {
        "flush.messages": "1" if is_lossy else LONG_MAX,
        "cleanup.policy": "delete",
        "internal.segment.bytes": random.choice(("4000", "1000000")),
        "retention.ms": "-1",
        "message.timestamp.type": "CreateTime",
    }
    return TopicPlan(name, random.choice((1, 2, 3)), settings, kept=True)


def _table(random: Random, *, is_lossy: bool) -> TopicPlan:
    """A topic that is compacted all the time: the cleaner must distinguish open, aborted and committed records."""
    kept = _kept(random, TABLE, is_lossy=is_lossy)
    settings = {
        "cleanup.policy": "compact",
        "segment.ms": "1000",
        "delete.retention.ms": "0",
        "min.cleanable.dirty.ratio": "0.0",
    }
    return replace(kept, partitions=1, settings=kept.settings | settings)


def _clients(random: Random, *, with_fleeting: bool) -> tuple[str, ...]:
    writers = ("idempotent", "idempotent", "plain", "library_producer")
    readers = ("reader", "reader", "library_consumer")
    others = ("admin", "nuisance", "bad_sender", "pipeliner")
    kinds = [random.choice(writers) for _ in range(random.choice((1, 2, 3)))]
    kinds += [random.choice(readers) for _ in range(random.choice((1, 2)))]
    kinds += [kind for kind in others if random.random() < 0.4 or (kind == "admin" and with_fleeting)]
    return tuple(kinds)


def _weather(random: Random) -> Weather:
    if random.random() < 0.35:
        return Weather(delay_ms_max=random.choice((1.0, 20.0)))
    return Weather(
        delay_ms_max=random.choice((1.0, 5.0, 100.0)),
        window=random.choice((500, 5_000, 1 << 16)),
        split=random.choice((0.0, 0.1, 0.5)),
        stall=random.choice((0.0, 0.0, 0.02)),
        stall_ms_max=random.choice((500.0, 8_000.0)),
        reset=random.choice((0.0, 0.005, 0.03)),
        silent=random.choice((0.0, 0.3)),
    )


def _mishaps(random: Random) -> dict[str, float]:
    if random.random() < 0.25:
        return {}
    kinds = ("lose_power", "kill", "stop", "cut_off", "jump_clock")
    return {kind: random.choice((3.0, 6.0, 12.0)) for kind in kinds if random.random() < 0.5}


def _faults(random: Random) -> tuple[Fault, ...]:
    kinds = (
        Fault(EIO, operations=("sync", "sync_directory"), rate=0.01),
        Fault(EIO, operations=("write",), suffix=".log", rate=0.005),
        Fault(EIO, operations=("lock",), rate=0.1),
        Fault(operations=("sync",), rate=0.1, delay_ms=300),
    )
    if random.random() < 0.75:
        return ()
    return tuple(fault for fault in kinds if random.random() < 0.5)
