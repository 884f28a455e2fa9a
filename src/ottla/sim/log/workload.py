"""The seeded workload of one log: clients write and read, upkeep runs, the disk fails, power is lost; everything is
checked.

Each operation first tells the history what is about to happen, then does it, then records the result. A power loss or
an I/O error may come anywhere in between; then the process ends, the next one opens what it finds, and the checkers
decide whether that is allowed. If descriptors run out the operation is refused, and the process continues. Work in
threads runs beside the operations: syncs of closed segments, checkpoints, the cleaner. After every promise of
durability a copy of the disk loses power, and must keep the promise (I18).
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any

from ottla.config import Config
from ottla.observe.trace import sink_installed
from ottla.sim.log import checkers
from ottla.sim.log.checkers import Seen
from ottla.sim.log.history import LogHistory
from ottla.sim.log.rot import check_rotten
from ottla.sim.log.senders import PreparedBatch, Senders
from ottla.sim.log.subject import Subject
from ottla.sim.log.swarm import Swarm
from ottla.sim.machine.bit_rot import flip_bits
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.disk import SimDisk
from ottla.sim.machine.faults import PowerLoss
from ottla.sim.played import Violation
from ottla.sim.records import DecodedBatch
from ottla.sim.transcript import Transcript
from ottla.storage.recovery import LogDamaged
from ottla.wire.errors import Error, Refused

OPENINGS_MAX = 4
"""After this many failed attempts to open the log the disk has no more faults."""
FULL_CHECK_EVERY = 10
LOSSES_MAX = 8
DELICATE = ("truncate", "restart_empty", "retain", "delete_records", "compact", "roll", "reopen")
"""Operations in and soon after which crashes are more frequent."""
SOON = 60
ROTTEN_COPIES = 6
DISTURBS_CLEANER = {
    "append": 5.0,
    "read": 3.0,
    "advance_watermark": 1.0,
    "retain": 2.0,
    "pass_time": 1.0,
    "roll": 0.5,
    "checkpoint": 0.5,
    "delete_records": 0.5,
    "truncate": 0.3,
}
DISTURBS_FLUSH = {
    "append": 5.0,
    "read": 1.0,
    "retain": 1.0,
    "roll": 1.0,
    "checkpoint": 0.5,
    "delete_records": 0.5,
}
"""Without truncation, after which it is unclear what the sync covered."""


class Workload:
    def __init__(self, swarm: Swarm, random: Random, clock: SimClock, transcript: Transcript) -> None:
        self.swarm = swarm
        self.random = random
        self.clock = clock
        self.transcript = transcript
        self.disk = SimDisk(clock, random, swarm.faults, transcript.disk_call)
        self.config = Config.of(swarm.topic, broker=swarm.broker)
        self.history = LogHistory(swarm.policy, latest_ms=clock.wall_ms())
        self.senders = Senders(swarm, random)
        self.disk.interleaving = swarm.interleaving
        self.background: list[asyncio.Task[None]] = []
        """Work in threads beside the operations."""
        self.leader_epoch = 0
        self.losses = 0
        self.failed_openings = 0
        self.watermark = 0
        self.subject: Subject

    async def play(self) -> None:
        self.transcript.note(f"swarm {self.swarm}")
        await self._start()
        names, weights = list(self.swarm.weights), list(self.swarm.weights.values())
        for number in range(self.swarm.operations):
            [name] = self.random.choices(names, weights)
            await self.operate(number, name)
        await self._end()

    async def operate(self, number: int, name: str) -> None:
        """Run one operation, and handle any failure in it."""
        self.transcript.note(f"{number} {name}")
        if name in DELICATE and self.random.random() < 0.3:
            self._schedule_crash(SOON)
        operation: Callable[[], Awaitable[None]] = getattr(self, f"do_{name}")
        try:
            try:
                await operation()
            except Refused as refused:
                self._excuse(refused)
            self._sync_closed_beside()
            self._check(full=number % FULL_CHECK_EVERY == 0)
        except PowerLoss:
            await self._after_power_loss()
        except Refused as refused:
            if refused.error is not Error.KAFKA_STORAGE_ERROR:
                raise
            await self._after_failure(refused)

    def _excuse(self, refused: Refused) -> None:
        """Continue if an operation was refused for lack of descriptors: it was not done, or can be repeated."""
        is_excused = self.subject.directory.failure is None and any("EMFILE" in one for one in self.disk.struck)
        if refused.error is not Error.KAFKA_STORAGE_ERROR or not is_excused:
            raise refused
        self.transcript.note(f"refused: {refused.text}")
        history, log = self.history, self.subject.log
        history.answered(accepted=False)
        history.truncating_to = None
        if log.end_offset != history.end_offset:
            raise Violation(
                "I10", f"refused, yet the log went from {history.end_offset} to {log.end_offset}"
            ) from refused
        self._adopt_start()
        # The new start may be written and not synced: then a crash decides whether it counts.
        begun = self.subject.directory.log_starts.get(self.subject.partition.key, 0)
        if history.may_start_at(begun):
            history.asked_start = max(history.asked_start, begun)
        history.retaining_at_ms = None

    # Beside the operations.

    def _beside(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def run() -> None:
            try:
                await work()
            except PowerLoss:
                pass  # The next disk step reports it.
            except Refused as refused:
                self.transcript.note(f"beside: {refused.text}")

        self.background = [task for task in self.background if not task.done()]
        self.background.append(asyncio.ensure_future(run()))

    def _sync_closed_beside(self) -> None:
        if self.subject.is_unsynced and self.random.random() < 0.5:
            self._beside(self.subject.sync_closed)

    def _end_process(self) -> None:
        for task in self.background:
            task.cancel()
        self.background.clear()

    # Writing.

    async def do_append(self) -> None:
        self._send(self.senders.next(self.history, self.clock.wall_ms()))
        await self._flush_if_due()

    async def do_end_transaction(self) -> None:
        marker = self.senders.marker(self.history, self.clock.wall_ms())
        if marker is not None:
            self._send(marker, marker=True)
            await self._flush_if_due()

    def _send(self, outgoing: PreparedBatch, *, marker: bool = False) -> None:
        history = self.history
        append_time = self.clock.wall_ms() if self.swarm.stamps_append_time else None
        batch = outgoing.stored_at(history.end_offset, self.leader_epoch, append_time)
        history.sending(batch)
        try:
            appended = self.subject.append(outgoing.data, self.leader_epoch, marker=marker)
        except Refused as refused:
            if refused.error is Error.RECORD_LIST_TOO_LARGE:
                history.answered(accepted=False)
                return
            if refused.error is Error.KAFKA_STORAGE_ERROR:
                raise
            raise Violation("I10", f"a good batch was refused: {refused}") from refused
        if appended.duplicate or (appended.first_offset, appended.last_offset) != (
            batch.base_offset,
            batch.last_offset,
        ):
            raise Violation("I2", f"{batch.base_offset} to {batch.last_offset} was answered with {appended}")
        history.answered(accepted=True)

    async def do_send_again(self) -> None:
        sent = self.senders.again(self.history)
        if sent is None:
            return
        try:
            appended = self.subject.append(self.senders.resend(sent), self.leader_epoch)
        except Refused as refused:
            # Only the last five batches of a producer are remembered, after a restart only the last one.
            known = (Error.OUT_OF_ORDER_SEQUENCE_NUMBER, Error.INVALID_PRODUCER_EPOCH, Error.RECORD_LIST_TOO_LARGE)
            if refused.error not in known:
                raise
            if self._is_newest(sent) and refused.error is not Error.RECORD_LIST_TOO_LARGE:
                raise Violation(
                    "I3", f"the last batch of its producer, sent again, was refused: {refused}"
                ) from refused
            return
        if not appended.duplicate:
            state = self.history.producers().get(sent.producer_id)
            raise Violation("I3", f"offset {sent.base_offset} sent again stands at {appended.first_offset}; {state}")
        if (appended.first_offset, appended.last_offset) != (sent.base_offset, sent.last_offset):
            raise Violation("I3", f"offset {sent.base_offset} sent again was answered with {appended}")

    def _is_newest(self, sent: DecodedBatch) -> bool:
        """Whether it is its producer's last batch, markers included: then the log must know it."""
        newest = next(batch for batch in reversed(self.history.batches) if batch.producer_id == sent.producer_id)
        return newest is sent

    async def do_send_badly(self) -> None:
        bad = self.senders.bad(self.history, self.clock.wall_ms())
        if bad is None:
            return
        outgoing, wrong = bad
        try:
            appended = self.subject.append(outgoing.data, self.leader_epoch)
        except Refused as refused:
            if refused.error is Error.KAFKA_STORAGE_ERROR:
                raise
            return
        raise Violation("I10", f"a batch with {wrong} was accepted at {appended.first_offset}")

    async def do_new_leader(self) -> None:
        self.leader_epoch += 1
        self.subject.partition.assign_epoch(self.leader_epoch)
        self.watermark = 0

    # Making durable.

    async def do_flush(self) -> None:
        """Records written while the sync runs in its thread are not covered by it. Sometimes two syncs run at a
        time."""
        end_offset = self.history.end_offset
        flush = asyncio.ensure_future(self.subject.flush())
        if self.random.random() < 0.3:
            self._beside(self.subject.flush)
        await self._disturb_while(flush, DISTURBS_FLUSH, 0.5)
        self._promise(end_offset)

    async def _flush_if_due(self) -> None:
        if self.subject.log.must_flush:
            end_offset = self.history.end_offset
            await self.subject.flush()
            self._promise(end_offset)

    def _promise(self, end_offset: int) -> None:
        """Everything before `end_offset` is durable; this is checked on the disk, not in the log (I18)."""
        self.history.flushed(end_offset)
        self._note_time()
        found = self.disk.if_power_went(Random(self.random.getrandbits(32)))
        try:
            with sink_installed(lambda _: None):
                seen = Subject(found, self.config, Random(0)).look()
            checkers.check_recovered(self.history.copy(), seen)
        except (Violation, Refused) as broken:
            raise Violation("I18", f"synced up to {end_offset}, and a power loss now: {broken}") from broken

    async def do_checkpoint(self) -> None:
        if self.random.random() < 0.5:
            self._beside(self.subject.checkpoint)
        else:
            await self.subject.checkpoint()

    # Upkeep.

    async def do_advance_watermark(self) -> None:
        log = self.subject.log
        ends = (batch.last_offset + 1 for batch in self.history.batches)
        ahead = [end for end in ends if log.high_watermark <= end] or [log.end_offset]
        target = self.random.choice((log.end_offset, self.random.choice(ahead)))
        log.advance_high_watermark(target)
        if log.high_watermark != target:
            raise Violation("I14", f"the watermark was moved to {target} and is {log.high_watermark}")

    async def do_roll(self) -> None:
        self.subject.partition.roll()

    async def do_retain(self) -> None:
        history, now_ms = self.history, self.clock.wall_ms()
        history.before_retention = self.subject.look().batches
        history.retaining_at_ms = now_ms
        self.subject.partition.retain(now_ms)
        self._adopt_start()
        history.retaining_at_ms = None

    async def do_delete_records(self) -> None:
        log = self.subject.log
        offset = self.random.randint(log.log_start_offset, log.high_watermark)
        self.history.asked_start = max(self.history.asked_start, offset)
        if self.subject.partition.delete_records(offset) < offset:
            raise Violation("I1", f"records up to {offset} were deleted, yet the log starts at {log.log_start_offset}")
        self._adopt_start()

    def _adopt_start(self) -> None:
        start = self.subject.log.log_start_offset
        if not self.history.may_start_at(start):
            raise Violation("I1", f"the log starts at {start}; nothing after {self.history.start_offset} was due")
        self.history.start_offset = start

    async def do_compact(self) -> None:
        """Run the cleaner in its thread, with other operations on the log at the same time."""
        if self.swarm.policy.compact and self.random.random() < 0.5:
            await self._make_cleanable()
        now_ms = self.clock.wall_ms()
        cleanable = self.subject.cleanable(now_ms)
        if cleanable is None or not cleanable.is_due:
            return
        self.history.cleaned(now_ms, self.subject.log.last_stable_offset, self.subject.log.high_watermark)
        cleaning = asyncio.ensure_future(self.subject.clean(cleanable, now_ms))
        await self._disturb_while(cleaning, DISTURBS_CLEANER, 0.85)

    async def _make_cleanable(self) -> None:
        """End all transactions and close the active segment. Otherwise a transaction is nearly always open, and nothing
        can be cleaned."""
        while (marker := self.senders.marker(self.history, self.clock.wall_ms())) is not None:
            self._send(marker, marker=True)
            await self._flush_if_due()
        self.subject.log.advance_high_watermark(self.subject.log.end_offset)
        self.subject.partition.roll()

    async def _disturb_while(self, work: "asyncio.Future[None]", operations: dict[str, float], likely: float) -> None:
        """Run other operations while work is done in threads."""
        try:
            while not work.done() and self.random.random() < likely:
                await asyncio.sleep(self.random.choice((0.02, 0.05, 0.5)) * self.random.random())
                [name] = self.random.choices(list(operations), list(operations.values()))
                if name in self.swarm.weights:
                    self.transcript.note(f"meanwhile {name}")
                    try:
                        await getattr(self, f"do_{name}")()
                    except Refused as refused:
                        self._excuse(refused)
        except BaseException:
            # The result is not needed any more.
            work.add_done_callback(lambda done: done.cancelled() or done.exception())
            work.cancel()
            raise
        await work

    async def do_truncate(self) -> None:
        log, history = self.subject.log, self.history
        # The cleaner relies on the watermark, so a compacted log is never truncated below it.
        cleaned = max((run.high_watermark for run in history.cleanings), default=0)
        lowest = min(max(log.log_start_offset + 1, cleaned), log.end_offset)
        # Truncating as far back as possible is a special case: the batch may begin before the log start.
        offset = lowest if self.random.random() < 0.25 else self.random.randint(lowest, log.end_offset)
        history.truncating_to = min([offset, *(b.base_offset for b in history.batches if b.last_offset >= offset)])
        self.subject.partition.truncate(offset)
        if log.end_offset > offset:
            raise Violation("I1", f"the log was truncated to {offset} and ends at {log.end_offset}")
        history.truncated(log.end_offset)
        history.start_offset = min(history.start_offset, log.log_start_offset)
        await self.do_new_leader()
        if self.random.random() < 0.5:
            # Old and new bytes share a position now, and nothing of this is synced yet.
            self._schedule_crash(5)
            for _ in range(3):
                self._send(self.senders.next(history, self.clock.wall_ms()))

    async def do_restart_empty(self) -> None:
        offset = self.history.end_offset + self.random.choice((0, 10))
        self.history.restarting = True
        self.subject.partition.restart(offset)
        self.history.restarted(offset)
        await self.do_new_leader()

    # Reading.

    async def do_read(self) -> None:
        log = self.subject.log
        upper = self.random.choice((log.high_watermark, log.last_stable_offset, log.end_offset))
        offset = self.random.randint(log.log_start_offset, max(log.log_start_offset, upper))
        batches = self.subject.read(offset, upper, self.random.choice((1, 300, 1 << 20)))
        checkers.check_bounded(batches, upper, "bound")
        self._check_fetch(batches, offset, upper)

    def _check_fetch(self, batches: list[DecodedBatch], offset: int, upper: int) -> None:
        """A fetch returns the same as a read of everything, from the batch that contains the offset on."""
        there = [batch for batch in self.subject.look().batches if offset <= batch.last_offset < upper]
        if batches != there[: len(batches)] or (there and not batches):
            raise Violation("I1", f"a fetch from {offset} to {upper} gave {batches}, there is {there}")

    async def do_read_committed(self) -> None:
        log = self.subject.log
        seen = self.subject.look()
        offset = self.random.randint(log.log_start_offset, log.last_stable_offset)
        served = list(self.subject.read_committed(offset, self.random.choice((300, 1 << 20))))
        checkers.check_committed(self.history, served, offset, log.last_stable_offset, seen)

    async def do_look_up_time(self) -> None:
        seen = self.subject.look()
        times = [batch.max_timestamp for batch in seen.batches] or [0]
        timestamp = self.random.choice(times) + self.random.choice((-1, 0, 1, -5_000))
        found = self.subject.partition.find_time(timestamp)
        checkers.check_time(seen, timestamp, found and (found.offset, found.timestamp))

    # Time.

    async def do_pass_time(self) -> None:
        await asyncio.sleep(self.random.choice((0.5, 3, 8, 25)))
        self._note_time()

    async def do_jump_clock(self) -> None:
        self.clock.jump(self.random.choice((-20_000, -500, 500, 40_000)))
        self._note_time()

    def _note_time(self) -> None:
        self.history.latest_ms = max(self.history.latest_ms, self.clock.wall_ms())

    # Ends and beginnings.

    async def do_reopen(self) -> None:
        """Stop the log cleanly and open it again: nothing may be lost or changed."""
        self._check(full=True)
        before = self.subject.look()
        await self._let_finish()
        try:
            self.subject.close()
        except Refused as refused:
            self._excuse(refused)
            await self.do_kill()  # As a node: a log that could not be closed is not marked as closed cleanly.
            return
        self._promise(self.history.end_offset)
        await self._start(check=False)
        after = self.subject.look()
        checkers.check_live(self.history, after)
        if after.producers != before.producers and not self.history.some_expired({*before.producers, *after.producers}):
            raise Violation("I19", f"before a clean stop {before.producers}, after it {after.producers}")

    async def _let_finish(self) -> None:
        """Cancel the tasks as a stopping node does, and let the threads run to their end."""
        self._end_process()
        await asyncio.sleep(1)

    async def do_kill(self) -> None:
        """Kill the process but not the machine: everything written must still be there."""
        end_offset, struck = self.history.end_offset, bool(self.disk.struck)
        troubles = self.losses + self.failed_openings
        self.disk = self.disk.after_kill()
        await self._start()
        undisturbed = self.losses + self.failed_openings == troubles and not struck and not self.disk.struck
        if undisturbed and self.subject.log.end_offset < end_offset:
            raise Violation(
                "I1", f"a killed process left a log up to {end_offset}; found {self.subject.log.end_offset}"
            )

    def _lose_power(self) -> None:
        self.losses += 1
        self.disk = self.disk.after_power_loss(self.random)

    async def _after_power_loss(self) -> None:
        self._lose_power()
        self.transcript.note(f"power lost; found {sum(map(len, filter(None, self.disk.contents().values())))} bytes")
        await self._start()

    async def _after_failure(self, refused: Refused) -> None:
        """Check that an offline directory accepts nothing more (KAFKA-10778), then restart the node."""
        self.transcript.note(f"offline: {refused.text}")
        if self.subject.directory.failure is None:
            raise Violation("I1", f"a log that never failed is refused: {refused}") from refused
        self._check_failed_for_a_reason()
        self._check_offline()
        if self.random.random() < 0.5:
            self.disk = self.disk.after_kill()
        else:
            self._lose_power()
        await self._start()

    def _check_offline(self) -> None:
        try:
            self.subject.append(self.senders.next(self.history, self.clock.wall_ms()).data, self.leader_epoch)
        except Refused as refused:
            if refused.error is not Error.KAFKA_STORAGE_ERROR:
                raise
        else:
            raise Violation("I18", "an append was accepted after an I/O error")

    async def _start(self, *, check: bool = True) -> None:
        """Open the log, through power losses and errors, and check what was found."""
        attempts = 0
        self._end_process()
        while True:
            attempts += 1
            if attempts > OPENINGS_MAX:
                self.disk.faults.clear()
            self._schedule_crash(2 * self.swarm.crash_steps)
            twin = self.disk.copy()
            try:
                self.subject = Subject(self.disk, self.config, self.random)
                break
            except PowerLoss:
                self._lose_power()
            except (Refused, OSError) as error:
                self._check_excused(error)
                self.failed_openings += 1
                self.disk = self.disk.after_kill()
        self._note_time()
        if check:
            self._check_recovering_twice(twin)
            checkers.check_recovered(self.history, self.subject.look())
        self.watermark = self.subject.log.high_watermark
        await self._lead()

    def _check_excused(self, error: Refused | OSError) -> None:
        """A log may be refused only after the disk failed."""
        self.transcript.note(f"not opened: {error}")
        if isinstance(error, LogDamaged) or not self.disk.struck:
            raise Violation("I1", f"the log cannot be opened: {error}") from error

    async def _lead(self) -> None:
        """Begin a new leader epoch after a restart, and first finish operations that the old process had begun."""
        try:
            if self.history.restarting:
                await self.do_restart_empty()
            await self.do_new_leader()
        except PowerLoss:
            await self._after_power_loss()
        except Refused as refused:
            await self._after_failure(refused)
        self.watermark = self.subject.log.high_watermark

    def _schedule_crash(self, within: int) -> None:
        self.disk.crash_at(-1)
        if self.swarm.crash_steps and self.losses < LOSSES_MAX:
            self.disk.crash_at(self.disk.step + self.random.randint(1, within))

    async def _end(self) -> None:
        """Remove all faults, stop cleanly, check everything once more."""
        self.disk.faults.clear()
        self.disk.crash_at(-1)
        if self.disk.is_off:  # Power was lost in a thread, and no operation has noticed yet.
            await self._after_power_loss()
        try:
            self.subject.directory.check_online()
        except Refused as refused:  # The disk failed in a thread, likewise.
            await self._after_failure(refused)
        self.disk.crash_at(-1)
        self._check(full=True)
        await self.do_reopen()
        self.disk.crash_at(-1)
        if self.swarm.rot:
            self._rot()
        self.transcript.note(f"disk {self.disk.digest()}")

    def _rot(self) -> None:
        """Close the log, flip some bits, and check what a reader gets; several times."""
        self.subject.close()
        for _ in range(ROTTEN_COPIES):
            disk = self.disk.copy()
            for flipped in flip_bits(disk, self.random):
                self.transcript.note(f"flipped {flipped}")
            try:
                result = check_rotten(Subject(disk, self.config, self.random), self.history)
            except Refused as refused:
                result = f"refused: {refused.text}"
            self.transcript.note(f"after rot: {result}")

    # Checking.

    def _check(self, *, full: bool) -> None:
        log = self.subject.log
        if self.subject.directory.failure is not None:
            self._check_failed_for_a_reason()
        self._note_time()
        checkers.check_watermark_kept(self.watermark, log.high_watermark)
        self.watermark = log.high_watermark
        if full:
            checkers.check_live(self.history, self.subject.look())

    def _check_failed_for_a_reason(self) -> None:
        """A directory goes offline only if the disk failed."""
        if not self.disk.struck:
            raise Violation("I24", f"offline without a fault: {self.subject.directory.failure}")

    def _check_recovering_twice(self, twin: SimDisk) -> None:
        """Check that recovery is repeatable (I22): open, die, open again, lose power, open again: always the same log.

        A power loss may still remove what a killed process had not synced, so that case is excluded.
        """
        settled = twin.is_settled()
        first = Subject(twin, self.config, Random(0)).look()
        killed = twin.after_kill()
        self._check_reopened(first, killed, "recovered, killed, recovered")
        if settled:
            found = killed.after_power_loss(Random(self.random.getrandbits(32)))
            self._check_reopened(first, found, "recovered, power lost, recovered")

    def _check_reopened(self, first: Seen, disk: SimDisk, what: str) -> None:
        again = Subject(disk, self.config, Random(0)).look()
        checkers.check_same(first, again, what, compacted=self.swarm.policy.compact)
