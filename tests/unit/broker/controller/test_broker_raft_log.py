"""The metadata log: what was answered is there after any crash, and nothing that was not decided."""

import asyncio
from contextlib import suppress
from functools import partial
from random import Random

import pytest
from broker_quorum_samples import LOG, ROOT, Home, new_disk, run

from ottla.broker.controller.publisher import MetadataDelta
from ottla.broker.controller.raft_log import NotAlone
from ottla.core.metadata.image import Image
from ottla.core.metadata.snapshot import records_of
from ottla.core.runtime.decision import Decision
from ottla.kernel import read_records, scan
from ottla.observe.trace import recording
from ottla.sim.machine.disk import SimDisk
from ottla.sim.machine.faults import PowerLoss
from ottla.storage.recovery import LogDamaged
from ottla.wire.errors import Error, Refused
from ottla.wire.records.metadata import FeatureLevelRecord, NoOpRecord


def _told(image: Image) -> list[str]:
    return [str(record) for record in records_of(image)]


async def _reopened(home: Home) -> list[str]:
    await home.open()
    return _told(home.image)


def test_new_log_begins_with_leader_voters_and_features() -> None:
    """As a Kafka 4.3 begins its own, after `format --standalone`."""
    home = Home(new_disk())

    async def work() -> None:
        await home.open()
        assert (home.raft_log.epoch, home.raft_log.kraft_version, home.raft_log.high_watermark) == (1, 1, 12)
        assert home.image.features == {
            "metadata.version": 30,
            "eligible.leader.replicas.version": 1,
            "group.version": 1,
            "share.version": 1,
            "streams.version": 1,
            "transaction.version": 2,
        }
        assert home.image.config(4, "") == {"min.insync.replicas": "1"}

    run(work)
    contents = home.disk.contents()
    headers = scan(contents[f"{LOG}/00000000000000000000.log"] or b"").headers
    assert [(one.base_offset, one.count, one.is_control, one.leader_epoch) for one in headers] == [
        (0, 3, True, 1),
        (3, 9, False, 1),
    ]
    assert f"{LOG}/00000000000000000000-0000000000.checkpoint" in contents
    assert f"{ROOT}/bootstrap.checkpoint" in contents
    assert b'"data_version":1' in (contents[f"{LOG}/quorum-state"] or b"")


def test_static_voters_are_not_in_the_log() -> None:
    home = Home(new_disk(), {"controller.quorum.voters": "1@localhost:9093"})

    async def work() -> None:
        await home.open()
        assert (home.raft_log.kraft_version, home.raft_log.high_watermark) == (0, 10)
        await home.close()
        # The log decides, not the settings.
        home.config = Home(home.disk).config
        await home.open()
        assert home.raft_log.kraft_version == 0

    run(work)
    assert b'"currentVoters":[{"voterId":1}]' in (home.disk.contents()[f"{LOG}/quorum-state"] or b"")


def test_everything_is_there_after_a_restart() -> None:
    home = Home(new_disk())

    async def work() -> None:
        await home.open()
        await home.join()
        await home.create("a", "b", partitions=3)
        await home.delete("a")
        told = _told(home.image)
        await home.close()
        await home.open()
        assert _told(home.image) == told
        assert home.raft_log.epoch == 2

    run(work)


def test_restart_continues_from_a_snapshot() -> None:
    home = Home(new_disk())

    async def work() -> None:
        await home.open()
        await home.join()
        await home.create("a", partitions=3)
        await home.raft_log.snapshot()
        await home.create("b")
        told = _told(home.image)
        await home.close()
        assert await _reopened(home) == told

    run(work)
    assert any(name.endswith("-0000000001.checkpoint") for name in home.disk.list(LOG))


def test_log_before_a_snapshot_goes_when_it_is_too_large() -> None:
    settings = {
        "metadata.max.retention.bytes": "2000",
        "metadata.log.max.record.bytes.between.snapshots": "1500",
    }
    home = Home(new_disk(), settings)

    async def work() -> None:
        await home.open()
        await home.join()
        for number in range(30):
            await home.create(f"t{number}")
            await home.delete(f"t{number}")
        while home.raft_log._snapshotter is not None and not home.raft_log._snapshotter.done():
            await asyncio.sleep(0)
        assert home.raft_log.log_start_offset > 50
        await home.create("last")
        told = _told(home.image)
        await home.close()
        assert await _reopened(home) == told

    run(work)
    assert len([name for name in home.disk.list(LOG) if name.endswith(".checkpoint")]) == 1


def test_decisions_see_what_was_decided_before_them_and_readers_only_what_is_durable() -> None:
    home = Home(new_disk())

    async def work() -> None:
        await home.open()
        await home.join()
        first, second = asyncio.ensure_future(home.create("t")), asyncio.ensure_future(home.create("t"))
        await asyncio.sleep(0)
        assert "t" not in home.image.topics
        assert await first == [Error.NONE]
        assert await second == [Error.TOPIC_ALREADY_EXISTS]
        assert "t" in home.image.topics

    run(work)


def test_refusal_waits_for_what_it_saw() -> None:
    """ "Already exists" would be a lie if the topic were lost with the power a moment later."""
    home = Home(new_disk())

    async def work() -> None:
        await home.open()
        await home.join()
        order: list[str] = []
        first, second = asyncio.ensure_future(home.create("t")), asyncio.ensure_future(home.create("t"))
        first.add_done_callback(lambda _: order.append("made"))
        second.add_done_callback(lambda _: order.append("refused"))
        await asyncio.gather(first, second)
        assert order == ["made", "refused"]
        assert home.raft_log.high_watermark == home.raft_log.end_offset

    run(work)


def test_one_sync_serves_all_that_wait() -> None:
    home = Home(new_disk())

    async def work() -> None:
        await home.open()
        await home.join()
        syncs: list[str] = []
        home.disk.observer = lambda _, operation, path: syncs.append(path) if operation == "sync" else None
        await asyncio.gather(*(home.create(f"t{number}") for number in range(20)))
        assert len(syncs) < 8
        assert len(home.image.topics) == 20

    run(work)


def test_listeners_hear_before_the_answer_and_in_order() -> None:
    home = Home(new_disk())

    async def work() -> None:
        await home.open()
        await home.join()
        heard: list[str] = []

        async def listen(delta: MetadataDelta, image: Image) -> None:
            assert image is home.image
            heard.extend(record.name for record in delta.records if type(record).__name__ == "TopicRecord")
            assert all(name in home.image.topics for name in heard)

        home.metadata.listeners.append(listen)
        await home.create("a")
        assert heard == ["a"]
        await asyncio.gather(home.create("b"), home.create("c"))
        assert heard == ["a", "b", "c"]

    run(work)


def test_cancelled_request_is_carried_out_all_the_same() -> None:
    """A connection that ends must not tear what others wait for."""
    home = Home(new_disk())

    async def work() -> None:
        await home.open()
        await home.join()
        gone, other = asyncio.ensure_future(home.create("t")), asyncio.ensure_future(home.create("u"))
        await asyncio.sleep(0)
        gone.cancel()
        assert await other == [Error.NONE]
        assert sorted(home.image.topics) == ["t", "u"]

    run(work)


def test_failed_sync_ends_the_quorum() -> None:
    """Nothing may be answered after a sync that failed: the pages may be gone (KAFKA-10778)."""
    home = Home(new_disk())

    async def work() -> None:
        await home.open()
        await home.join()

        def fail() -> None:
            raise OSError(5, "Input/output error")

        begin = home.raft_log._log.begin_flush
        home.raft_log._log.begin_flush = lambda: begin()._replace(run=fail)  # type: ignore[method-assign]
        results = await asyncio.gather(home.create("t"), home.create("u"))
        assert results == [[Error.KAFKA_STORAGE_ERROR], [Error.KAFKA_STORAGE_ERROR]]
        assert home.image.topics == {}
        assert await home.create("v") == [Error.KAFKA_STORAGE_ERROR]

    with recording() as events:
        run(work)
    assert "quorum.failed" in [event.name for event in events]


def test_closed_quorum_refuses() -> None:
    home = Home(new_disk())

    async def work() -> None:
        await home.open()
        await home.close()
        with pytest.raises(Refused, match="stopping"):
            await home.controller.decide_and_commit(lambda _: Decision(None, [NoOpRecord()]))

    run(work)


def test_what_was_decided_goes_with_the_office() -> None:
    """Another controller may decide otherwise: what is not committed must not be built on."""
    home = Home(new_disk())

    async def work() -> None:
        await home.open()
        await home.join()
        made = asyncio.ensure_future(home.create("t"))
        await asyncio.sleep(0)
        home.controller.leave_office()
        assert await home.create("u") == [Error.NOT_CONTROLLER]
        assert await made == [Error.NONE], "it was appended, and the log is still this node's"
        await home.controller.take_office()
        assert home.raft_log.epoch == 2
        assert await home.create("t", "u") == [Error.TOPIC_ALREADY_EXISTS, Error.NONE]

    run(work)


def test_producer_ids_are_given_once_also_across_a_restart() -> None:
    home = Home(new_disk())

    async def work() -> None:
        await home.open()
        await home.join()
        given = await asyncio.gather(*(home.producer_ids.next() for _ in range(1500)))
        assert given == list(range(1500))
        await home.close()
        await home.open()
        await home.join()
        assert await home.producer_ids.next() == 2000

    run(work)


def test_quorum_of_several_is_not_opened() -> None:
    home = Home(new_disk(), {"controller.quorum.voters": "1@a:1,2@b:1,3@c:1"})
    with pytest.raises(NotAlone):
        run(home.open)


def test_damaged_snapshot_is_not_passed_over() -> None:
    home = Home(new_disk())

    async def work() -> None:
        await home.open()
        await home.join()
        await home.raft_log.snapshot()
        await home.close()

    run(work)
    snapshot = next(name for name in home.disk.list(LOG) if name.endswith("-0000000001.checkpoint"))
    home.disk.flip_bit(f"{LOG}/{snapshot}", 8 * 200)
    with pytest.raises(LogDamaged):
        run(home.open)


def test_level_that_is_not_known_is_not_opened() -> None:
    home = Home(new_disk())

    async def work() -> None:
        await home.open()
        await home.controller.decide_and_commit(
            lambda _: Decision(None, [FeatureLevelRecord(name="metadata.version", feature_level=31)])
        )
        await home.close()
        await home.open()

    with pytest.raises(Exception, match="level 31"):
        run(work)


async def _script(home: Home, done: list[str]) -> None:
    """Something of everything; `done` tells what was answered."""
    await home.open()
    await home.join()
    done.append("joined")
    made = await asyncio.gather(home.create("a", partitions=2), home.create("b"))
    if made == [[Error.NONE], [Error.NONE]]:
        done.append("a b")
    await home.raft_log.snapshot()
    if await home.delete("a") == Error.NONE:
        done.append("a deleted")
    if await home.create("c") == [Error.NONE]:
        done.append("c")
    await home.close()


EXPECTED = {
    "joined": lambda image: 1 in image.brokers,
    "a b": lambda image: "b" in image.topics,
    "a deleted": lambda image: "a" not in image.topics,
    "c": lambda image: "c" in image.topics,
}


def _steps_of_script() -> int:
    disk = new_disk()
    run(lambda: _script(Home(disk), []))
    return disk.step


@pytest.mark.parametrize("chunk", range(4))
def test_what_was_answered_survives_power_loss_at_any_step(chunk: int) -> None:
    """And opening again after another loss of power gives the same."""
    for step in range(chunk, _steps_of_script(), 4):
        disk, done = new_disk(), list[str]()
        disk.crash_at(step)
        with suppress(PowerLoss, Refused, OSError):
            run(partial(_script, Home(disk), done))
        survived = disk.after_power_loss(Random(step))
        image = _opened(survived)
        missing = [what for what in done if not EXPECTED[what](image)]
        assert missing == [], f"power lost at step {step} after {done}"
        assert _told(_opened(survived.after_power_loss(Random(step + 1)))) == _told(image)


def _opened(disk: SimDisk) -> Image:
    home = Home(disk)
    run(home.open)
    return home.image


def test_epoch_grows_with_every_start_also_when_nothing_was_written() -> None:
    """Two leaders of one epoch could number the same offsets."""
    disk = new_disk()
    epochs = []
    for _ in range(3):
        home = Home(disk)
        run(home.open)
        epochs.append(home.raft_log.epoch)
        disk = disk.after_kill()
    assert epochs == [1, 2, 3]
    log = disk.contents()[f"{LOG}/00000000000000000000.log"] or b""
    first = [read_records(log, header, 0)[0].key for header in scan(log).headers[:1]]
    assert first == [b"\x00\x00\x00\x02"]
