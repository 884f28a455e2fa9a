"""What a node does with bytes that are gone or wrong when it needs them."""

import asyncio
from typing import Any

import pytest
from broker_quorum_samples import Home, new_disk, run

from ottla.broker.outlet import TransportOutlet
from ottla.sim.clock import SimClock
from ottla.sim.disk import SimDisk
from ottla.storage.recovery import LogDamaged
from ottla.storage.slices import Slice

LOG = "/data/__cluster_metadata-0/00000000000000000000.log"


@pytest.mark.parametrize("field_at", [23, 57, 90])
def test_flipped_bit_in_the_metadata_log_is_no_decision(field_at: int) -> None:
    """After a clean stop the log is not recovered; a batch that seems to end earlier would be passed over."""
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
    TransportOutlet(transport).send([b"header", Slice(file, 0, 10, 0)])
    assert transport.aborted
