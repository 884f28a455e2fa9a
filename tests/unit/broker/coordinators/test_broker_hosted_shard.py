"""A shard at work in a partition that others replicate: what shares a batch, and how long anyone waits.

The partition is played by hand, so that the high watermark moves when the test says so.
"""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.coordinators.hosted_shard import HostedShard
from ottla.broker.partitions.commits import Commit, Commits
from ottla.config import Config
from ottla.core.runtime.decision import PARKED, Decision, Token
from ottla.core.runtime.shard import CoordinatorRecord, RecordOrigin, RecordRun, encode_record
from ottla.kernel import Codec, read_records, scan
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.loop import run
from ottla.wire.errors import Error, Refused
from ottla.wire.records.groups import OffsetCommitKey, OffsetCommitValue

TIMEOUT_MS = 5_000


class Partition:
    """Of two replicas, whose follower fetches when the test says so."""

    name = "p-0"
    leader_epoch = 3

    def __init__(self) -> None:
        self.isr: tuple[int, ...] = (1, 2)
        self.commits_itself = False
        self.batches: list[bytes] = []
        self.high_watermark = 0
        self.commits = Commits(self.name)
        self.log = SimpleNamespace(
            state=SimpleNamespace(end_offset=0, config=Config.of({"max.message.bytes": "2000"})),
            directory=SimpleNamespace(failure=None),
        )

    def append_own(self, batch: bytes, leader_epoch: int) -> None:
        assert leader_epoch == self.leader_epoch
        (header,) = scan(batch).headers
        assert (header.base_offset, header.leader_epoch) == (self.log.state.end_offset, self.leader_epoch)
        self.log.state.end_offset = header.next_offset
        self.batches.append(batch)
        if self.commits_itself:
            self.replicate()

    def replicate(self) -> None:
        self.high_watermark = self.log.state.end_offset
        self.commits.reached(self.high_watermark)

    def lead(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self.commits.refuse(Refused(Error.NOT_LEADER_OR_FOLLOWER, "another leader epoch has begun"))

    def committed(self, leader_epoch: int, offset: int, timeout_ms: int | None) -> Commit | None:
        assert leader_epoch == self.leader_epoch
        return None if self.high_watermark >= offset else self.commits.wait(offset, timeout_ms)


class Shard:
    """Remembers what was replayed."""

    def __init__(self) -> None:
        self.replayed: list[tuple[str, int]] = []
        self.deadline: int | None = None

    def replay(self, record: CoordinatorRecord, origin: RecordOrigin) -> None:
        self.replayed.append((record.key.group, origin.offset))

    def replay_marker(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None: ...

    def loaded(self, _now_ms: int) -> Decision[None]:
        return Decision(None)

    def tick(self, _now_ms: int) -> Decision[None]:
        self.deadline = None
        return Decision(None, [record("tick")])

    def next_deadline(self) -> int | None:
        return self.deadline

    def clock_set(self, by_ms: int) -> None: ...


def record(name: str, size: int = 0) -> CoordinatorRecord:
    value = OffsetCommitValue(offset=1, metadata="x" * size, commit_timestamp=0)
    return CoordinatorRecord(OffsetCommitKey(group=name, topic="t", partition=0), value, 4)


class Home:
    def __init__(self, clock: SimClock) -> None:
        self.clock = clock
        self.partition = Partition()
        self.ended: list[HostedShard[Shard]] = []
        self.hosted = HostedShard(
            0,
            self.partition,  # type: ignore[arg-type]
            Shard(),
            now_ms=clock.wall_ms,
            on_end=self.ended.append,
            commit_timeout_ms=TIMEOUT_MS,
            codec=Codec.NONE,
        )
        self.hosted.activate()

    def decide(self, name: str, token: int = 0, **decided: Any) -> Any:
        decision = Decision(**{"reply": name, "records": [record(name)]} | decided)
        self.hosted.write(decision.records, self.clock.wall_ms())
        return self.hosted.answer(decision, Token(token), lambda refusal: refusal.error, self.clock.wall_ms())

    @property
    def written(self) -> list[list[bytes]]:
        return [[one.key or b"" for one in read_records(batch)] for batch in self.partition.batches]


def played(scenario: Callable[[Home], Coroutine[Any, Any, None]]) -> None:
    clock = SimClock()

    async def main(_: object) -> None:
        await scenario(Home(clock))

    run(main, 0, clock)


def test_decisions_of_one_turn_share_a_batch_and_wait_for_the_followers() -> None:
    async def scenario(home: Home) -> None:
        first, second = home.decide("a"), home.decide("b")
        assert home.hosted.shard.replayed == [("a", 0), ("b", 1)], "the next decision sees them"
        assert home.written == []
        await asyncio.sleep(0)
        assert [len(batch) for batch in home.written] == [2]
        third = home.decide("c")
        home.partition.replicate()
        assert (await first, await second) == ("a", "b")
        assert not third.done(), "it was not even written then"
        await asyncio.sleep(0)
        home.partition.replicate()
        assert await third == "c"

    played(scenario)


def test_alone_in_sync_a_decision_is_written_at_once() -> None:
    async def scenario(home: Home) -> None:
        home.partition.isr = (1,)
        waits = home.decide("a")
        assert [len(batch) for batch in home.written] == [1]
        home.partition.replicate()
        assert await waits == "a"

    played(scenario)


class Run(RecordRun):
    """One record that knows its bytes."""

    def __init__(self, name: str) -> None:
        self._record = record(name)
        key, value = encode_record(self._record)
        self.keys, self.values = [key], [value or b""]
        self.size = len(key) + len(value or b"")

    def replay(self, shard: Any, first_offset: int) -> None:
        shard.replay(self._record, RecordOrigin(first_offset, 0))

    def record(self, _number: int) -> CoordinatorRecord:
        return self._record


def one_by_one(name: str) -> list[CoordinatorRecord]:
    return [record(name)]


def hold(home: Home, name: str, holder: dict[Any, None], records: Callable[[str], Any] = Run) -> Any:
    """Decide something whose answer `holder` holds back."""
    decided = records(name)
    home.hosted.write(decided, home.clock.wall_ms(), is_held=True)
    connection: Any = SimpleNamespace(hold=lambda hosted: holder.setdefault(hosted))
    return home.hosted.answer(Decision(name, decided), Token(0), None, home.clock.wall_ms(), connection)


@pytest.mark.parametrize("records", [Run, one_by_one])
def test_alone_in_sync_what_answers_are_held_back_for_is_one_batch(records: Callable[[str], Any]) -> None:
    """The answers are ready, and may leave once it is written."""

    async def scenario(home: Home) -> None:
        home.partition.isr = (1,)
        home.partition.commits_itself = True
        holder: dict[Any, None] = {}
        assert (hold(home, "a", holder, records), hold(home, "b", holder, records)) == ("a", "b")
        assert (home.written, list(holder)) == ([], [home.hosted])
        reader: Any = home.hosted.answer(Decision("reader"), Token(0), None, home.clock.wall_ms())
        assert not reader.done(), "whoever cannot hold its answer waits"
        assert home.hosted.write_held()
        assert [len(batch) for batch in home.written] == [2]
        assert await reader == "reader"
        hold(home, "c", holder, records)
        await asyncio.sleep(0)
        assert [len(batch) for batch in home.written] == [2, 1], "nobody asked for it, and still"

    played(scenario)


def test_held_answers_may_not_leave_when_nothing_could_be_written() -> None:
    async def scenario(home: Home) -> None:
        home.partition.isr = (1,)
        hold(home, "a", {})
        home.partition.log.state.end_offset += 1
        assert not home.hosted.write_held()
        assert home.ended == [home.hosted]

    played(scenario)


def test_no_answer_is_held_back_where_a_sync_is_asked_for() -> None:
    """Written is not committed then, and an answer that is ready cannot wait."""

    async def scenario(home: Home) -> None:
        home.partition.isr = (1,)
        home.partition.log.state.config = Config.of({"flush.messages": "1"})
        holder: dict[Any, None] = {}
        waits = hold(home, "a", holder)
        assert ([len(batch) for batch in home.written], holder) == ([1], {})
        home.partition.replicate()
        assert await waits == "a"

    played(scenario)


def test_a_reader_waits_for_what_it_saw() -> None:
    async def scenario(home: Home) -> None:
        assert home.decide("nothing yet", records=[]) == "nothing yet"
        home.decide("a")
        seen = home.decide("reader", records=[])
        await asyncio.sleep(0)
        assert not seen.done()
        home.partition.replicate()
        assert await seen == "reader"

    played(scenario)


def test_a_parked_request_is_woken_when_the_decision_that_wakes_it_is_committed() -> None:
    async def scenario(home: Home) -> None:
        parked = home.decide("", token=7, reply=PARKED, records=[])
        home.decide("leader", wake=[(Token(7), "woken")])
        await asyncio.sleep(0)
        assert not parked.done()
        home.partition.replicate()
        assert await parked == "woken"

    played(scenario)


def test_who_waits_too_long_is_told_and_what_was_written_may_still_count() -> None:
    async def scenario(home: Home) -> None:
        parked = home.decide("", token=7, reply=PARKED, records=[])
        first = home.decide("a", wake=[(Token(7), "woken")])
        await asyncio.sleep(3)
        second = home.decide("b")
        assert await first is Error.COORDINATOR_NOT_AVAILABLE
        assert not second.done()
        assert await second is Error.COORDINATOR_NOT_AVAILABLE
        assert not parked.done()
        home.partition.replicate()
        assert await parked == "woken"

    played(scenario)


def test_a_sync_that_is_tried_again_is_waited_for_until_time_is_up() -> None:
    """For want of descriptors: the records are in the log, and may be the end of a transaction."""

    async def scenario(home: Home) -> None:
        home.partition.isr = (1, 2)
        written, late = home.decide("a"), home.decide("b")
        await asyncio.sleep(0)
        home.partition.commits.refuse(Refused(Error.KAFKA_STORAGE_ERROR, "too many open files"))
        await asyncio.sleep(1)
        assert not written.done()
        assert len(home.partition.commits) == 2, "it waits for the next attempt"
        home.partition.commits.reached(1)
        assert await written == "a"
        assert await late is Error.COORDINATOR_NOT_AVAILABLE, "its time was up"

    played(scenario)


def test_another_leader_epoch_refuses_whoever_waits() -> None:
    async def scenario(home: Home) -> None:
        parked = home.decide("", token=7, reply=PARKED, records=[])
        written = home.decide("a")
        await asyncio.sleep(0)
        home.partition.lead(4)
        assert (await parked, await written) == (Error.NOT_COORDINATOR, Error.NOT_COORDINATOR)
        assert home.ended == [home.hosted]
        with pytest.raises(Refused, match="could not be written"):
            home.decide("b")

    played(scenario)


def test_a_log_that_someone_else_wrote_to_ends_the_shard() -> None:
    """The offsets it gave out are not where its records would stand."""

    async def scenario(home: Home) -> None:
        waits = home.decide("a")
        home.partition.log.state.end_offset += 1
        assert await waits is Error.NOT_COORDINATOR
        assert home.ended == [home.hosted]

    played(scenario)


def test_a_decision_too_large_for_a_batch_is_refused_and_changes_nothing() -> None:
    async def scenario(home: Home) -> None:
        with pytest.raises(Refused, match=r"max\.message\.bytes"):
            home.decide("a", records=[record("a", 1_000), record("b", 1_000)])
        assert home.hosted.shard.replayed == []
        home.hosted.apply(Decision(None, [record("a", 1_000), record("b", 1_000)]), home.clock.wall_ms())
        await asyncio.sleep(0)
        assert [len(batch) for batch in home.written] == [1, 1], "what nobody asked for may be split"

    played(scenario)


def test_decisions_that_do_not_fit_together_are_written_in_turn() -> None:
    async def scenario(home: Home) -> None:
        home.decide("a", records=[record("a", 1_200)])
        home.decide("b", records=[record("b", 1_200)])
        await asyncio.sleep(0)
        assert [len(batch) for batch in home.written] == [1, 1]

    played(scenario)


def test_what_is_due_is_done_without_anybody_asking() -> None:
    async def scenario(home: Home) -> None:
        home.hosted.shard.deadline = home.clock.wall_ms() + 1_000
        home.decide("a", records=[])
        await asyncio.sleep(0.999)
        assert home.written == []
        await asyncio.sleep(0.002)
        assert [len(batch) for batch in home.written] == [1]

    played(scenario)
