"""A node in virtual time and what a client needs to reach it."""

from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any

from ottla.broker.node import Node
from ottla.client import Admin, Client, NewTopic, Ports, settled
from ottla.config import Config
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.disk import SimDisk
from ottla.sim.machine.loop import run
from ottla.sim.machine.network import SimNetwork, Weather
from ottla.wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest

BOOTSTRAP = "node:9092"
SETTINGS = {
    "node.id": "1",
    "listeners": f"PLAINTEXT://{BOOTSTRAP}",
    "log.dirs": "/data",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


def simulated(
    work: Callable[[Client], Coroutine[Any, Any, None]],
    topics: Mapping[str, int],
    *,
    version: int = 2,
    weather: Weather | None = None,
    seed: int = 0,
) -> None:
    """Run `work` with a client of a node that has these topics, and this version of transactions."""
    clock, random = SimClock(), Random(seed)
    network = SimNetwork(random, Weather())

    async def main(_: object) -> None:
        node = Node(
            Config.of(broker=SETTINGS),
            disk=SimDisk(clock, random),
            clock=clock,
            random=random,
            network=network.host("node"),
            new_id=lambda: random.randbytes(16),
        )
        await node.start()
        ports = Ports(network.host("client"), clock, random)
        # The cluster's version is told when a connection begins.
        async with Client(BOOTSTRAP, ports=ports) as client:
            settled(await Admin(client).create_topics([NewTopic(name, count) for name, count in topics.items()]))
            update = FeatureUpdateKey(feature="transaction.version", max_version_level=version, upgrade_type=2)
            if version < 2:
                _, told = await client.call_any(UpdateFeaturesRequest(feature_updates=[update]))
                assert told.error_code == 0, told
        network.weather = weather or network.weather
        async with Client(BOOTSTRAP, ports=ports) as client:
            await work(client)
        network.weather = Weather()
        await node.stop()

    run(main, seed, clock)
