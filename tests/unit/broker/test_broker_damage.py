"""What a node does with bytes that are gone or wrong when it needs them."""

import asyncio
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from broker_quorum_samples import Home, new_disk, run
from broker_transaction_samples import Broker

from ottla.broker.network.socket_writer import TransportWriter
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.disk import SimDisk
from ottla.sim.machine.faults import PowerLoss
from ottla.sim.machine.loop import run as sim_run
from ottla.storage.log_directory import WrongDirectory
from ottla.storage.recovery import LogDamaged
from ottla.storage.slices import Slice
from ottla.wire.errors import Refused

LOG = "/data/__cluster_metadata-0/00000000000000000000.log"


@pytest.mark.parametrize("field_at", [8, 11, 16, 23, 57, 90])
def test_flipped_bit_in_the_metadata_log_is_no_decision(field_at: int) -> None:
    """After a clean stop the log is not recovered. A batch that seems to end earlier would be passed over; after one of
    the wrong size nothing would be read."""
    home = Home(new_disk())

    async def work() -> None:
        await home.open()
        await home.join()
        await home.create("topic")
        await home.close()

    run(work)
    [path] = [path for path in home.disk.contents() if path.endswith(LOG.removeprefix("/data"))]
    data = home.disk.contents()[path] or b""
    second = 12 + int.from_bytes(data[8:12], "big")
    home.disk.flip_bit(path, 8 * (second + field_at))
    with pytest.raises(LogDamaged):
        run(home.open)


def lost(disk: SimDisk, below: str) -> None:
    """A directory is gone, and everything in it."""
    for path in sorted((path for path in disk.contents() if f"{path}/".startswith(f"{below}/")), reverse=True):
        if disk.contents()[path] is None:
            disk.remove_directory(path)
        else:
            disk.remove(path)


@pytest.mark.parametrize("clean", [True, False])
def test_a_directory_that_lost_its_metadata_is_no_new_cluster(clean: bool) -> None:
    """The node started, empty, with another set of ids: topics and committed offsets were lost without a word."""
    clock = SimClock()

    async def main(_: object) -> None:
        broker = await Broker(clock).start()
        await broker.prepare()
        if clean:
            await broker.node.stop()
        disk = broker.disk.after_kill()
        lost(disk, "/data/__cluster_metadata-0")
        before = disk.contents()
        for _ in range(2):
            with pytest.raises(Refused, match=r"__cluster_metadata-0 is missing, though a node has run here"):
                await Broker(clock, disk).start()
            disk = disk.after_kill()
            assert "/data/__cluster_metadata-0" not in disk.contents()
            topics = {path for path in before if path.startswith(("/data/t-", "/data/__consumer"))}
            assert topics <= disk.contents().keys()

    sim_run(main, 0, clock)


@pytest.mark.parametrize("step", range(1, 40))
def test_a_first_start_that_was_cut_short_is_followed_by_another(step: int) -> None:
    """Whatever it has left is no sign of a node that has run."""
    clock = SimClock()

    async def main(_: object) -> None:
        broker = Broker(clock)
        broker.disk.crash_at(step)
        with suppress(PowerLoss):
            await broker.start()
        for seed in range(3):
            found = broker.disk.copy().after_power_loss(Random(seed))
            await Broker(clock, found).start()
        await Broker(clock, broker.disk.copy().after_kill()).start()

    sim_run(main, 0, clock)


@pytest.mark.parametrize("garbage", [b"", b"junk", b"\xff\xfe", b"node.id=x\ncluster.id=c\n", b"version=9\n"])
def test_garbage_in_meta_properties_is_told_in_a_sentence(garbage: bytes) -> None:
    """It gave a traceback."""
    clock = SimClock()

    async def main(_: object) -> None:
        disk = SimDisk(clock, Random(0))
        disk.make_directory("/data")
        disk.open("/data/meta.properties", create=True).write(0, [garbage])
        with pytest.raises(WrongDirectory, match=r"/data/meta.properties does not say whose directory this is"):
            await Broker(clock, disk).start()

    sim_run(main, 0, clock)


def test_answer_from_a_file_that_is_closed_ends_its_connection_and_no_other() -> None:
    """A topic may be deleted between the reading of a fetch and the sending of its answer."""

    class Transport(asyncio.Transport):
        aborted = False

        def writelines(self, list_of_data: Any) -> None:
            raise AssertionError(f"half an answer was sent: {list_of_data}")

        def abort(self) -> None:
            self.aborted = True

    file = SimDisk(SimClock(), None).open("/log", create=True)  # type: ignore[arg-type]
    file.close()
    transport = Transport()
    TransportWriter(transport).send([b"header", Slice(file, 0, 10, 0)])
    assert transport.aborted
