"""Reading clients: long polls with and without sessions, by name and by id, committed or not; and whole logs."""

from collections.abc import Iterator
from typing import Any

from ottla.rpc.errors import ClientError
from ottla.sim.node.committed import with_verdict
from ottla.sim.node.ledger import Key, name_of, text_of
from ottla.sim.node.scene import Line, Scene
from ottla.sim.played import Violation
from ottla.sim.records import BadBatch, DecodedBatch, DecodedRecord, decode_all
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData
from ottla.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.errors import Error

BY_NAME = 12
"""The last version of Fetch that names topics."""
PROMPT_S = 1.0
"""How late a record may reach a waiting reader, if nothing is slow."""
EARLIEST, LATEST = -2, -1
_SESSION_OVER = (
    Error.FETCH_SESSION_ID_NOT_FOUND,
    Error.INVALID_FETCH_SESSION_EPOCH,
    Error.FETCH_SESSION_TOPIC_ID_ERROR,
)
_GONE = (Error.UNKNOWN_TOPIC_ID, Error.UNKNOWN_TOPIC_OR_PARTITION)


class Reader:
    def __init__(self, scene: Scene, name: str) -> None:
        random = scene.random
        self._scene = scene
        self._line = Line(scene, name)
        self._by_name = random.random() < 0.3
        self._with_session = random.random() < 0.5
        self._committed = random.random() < 0.5
        self._wait_ms = random.choice((0, 500, 3_000))
        self._min_bytes = random.choice((1, 1, 500))
        self._max_bytes = random.choice((200, 2_000, 1 << 20))
        self._positions: dict[Key, int] = {}
        self._unsure: dict[Key, None] = {}
        """Positions that were not reached by reading: the next record may be anywhere after."""
        self._life = 0
        self._session, self._epoch = 0, 0
        self._asked: dict[Key, int] = {}
        """The partitions in the session."""

    async def run(self) -> None:
        scene = self._scene
        while not scene.ending:
            try:
                self._follow_topics()
                if self._positions:
                    await self._fetch()
            except ClientError:
                self._end_session()
                await scene.pause(0.5)
            await scene.pause(0.2)
        self._line.hang_up()

    def _follow_topics(self) -> None:
        keys = self._scene.all_keys(fleeting=not self._by_name)
        for key in keys:
            self._positions.setdefault(key, 0)
        for key in [key for key in self._positions if key not in keys]:
            del self._positions[key]

    def _end_session(self) -> None:
        self._session, self._epoch = 0, 0
        self._asked.clear()

    async def _fetch(self) -> None:
        scene, life, asked_at = self._scene, self._scene.ledger.lives, self._scene.now
        if life != self._life:
            self._unsure.update({key: None for key in self._positions if not scene.ledger.counts(key, self._life)})
            self._life = life
        positions = dict(self._positions)
        request = self._request(positions)
        answer = await self._line.call(
            request, timeout_ms=self._wait_ms + 2_500, at_most=BY_NAME if self._by_name else None
        )
        error = Error(answer.error_code)
        if error is not Error.NONE:
            if error not in _SESSION_OVER or not self._with_session:
                raise Violation("I8", f"a fetch was refused: {error.name}")
            self._end_session()
            return
        if self._with_session and answer.session_id:
            self._session, self._epoch, self._asked = answer.session_id, self._epoch + 1, positions
        for topic in answer.responses:
            for data in topic.partitions:
                key = self._key(topic, data.partition_index)
                if key is not None and key in positions:
                    await self._take(key, positions[key], data, life, asked_at)
        if not scene.is_calm and scene.random.random() < 0.02:
            self._line.hang_up()
            self._end_session()

    def _key(self, topic: Any, index: int) -> Key | None:
        if not self._by_name:
            return topic.topic_id, index
        live = self._scene.topics.get(topic.topic)
        return (live.topic_id, index) if live is not None else None

    def _request(self, positions: dict[Key, int]) -> FetchRequest:
        news = {key: offset for key, offset in positions.items() if self._asked.get(key) != offset or not self._session}
        forgotten = [key for key in self._asked if key not in positions]
        return FetchRequest(
            max_wait_ms=self._wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            isolation_level=int(self._committed),
            session_id=self._session,
            session_epoch=self._epoch if self._with_session else -1,
            topics=[
                FetchTopic(
                    topic=self._scene.name_of(key[0]) or "",
                    topic_id=key[0],
                    partitions=[_wanted(key[1], offset, self._max_bytes)],
                )
                for key, offset in news.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic=self._scene.name_of(key[0]) or "", topic_id=key[0], partitions=[key[1]])
                for key in forgotten
            ],
        )

    async def _take(self, key: Key, position: int, data: PartitionData, life: int, asked_at: float) -> None:
        error = Error(data.error_code)
        if error is Error.OFFSET_OUT_OF_RANGE:
            await self._find_position(key, position, life)
        elif error in _GONE:
            self._positions.pop(key, None)
        elif error is Error.KAFKA_STORAGE_ERROR:
            await self._scene.pause(0.5)
        elif error is not Error.NONE:
            raise Violation("I8", f"a fetch of {name_of(key)} at {position} was refused: {error.name}")
        else:
            self._take_records(key, position, data, life, asked_at)

    def _take_records(self, key: Key, position: int, data: PartitionData, life: int, asked_at: float) -> None:
        scene, history = self._scene, self._scene.ledger.partition(key)
        upper = data.last_stable_offset if self._committed else data.high_watermark
        scene.ledger.bounds_reported(key, start=data.log_start_offset, watermark=data.high_watermark, life=life)
        for batch, is_committed in with_verdict(batches_in(key, data), data.aborted_transactions or ()):
            if batch.last_offset >= upper:
                raise Violation(
                    "I14", f"{name_of(key)}: offset {batch.last_offset} was read, readable is up to {upper}"
                )
            if batch.last_offset < position or (
                batch.base_offset > position and not history.plan.compacts and key not in self._unsure
            ):
                raise Violation(
                    "I8", f"{name_of(key)}: asked for {position}, got {batch.base_offset} to {batch.last_offset}"
                )
            for record in () if batch.is_control else batch.records:
                sent = scene.ledger.read(key, record, life=life)
                if self._committed and is_committed and sent.transaction is not None:
                    sent.transaction.seen(text_of(sent))
                if record.offset >= position and scene.is_calm and self._min_bytes == 1 and sent.acked_at:
                    late_s = scene.now - max(asked_at, sent.acked_at)
                    if late_s > PROMPT_S:
                        raise Violation(
                            "I24",
                            f"{text_of(sent)} was acknowledged {late_s:.1f} s before a waiting reader got it",
                        )
            position = batch.last_offset + 1
            self._unsure.pop(key, None)
        if key in self._positions:
            self._positions[key] = position

    async def _find_position(self, key: Key, position: int, life: int) -> None:
        name, ledger = self._scene.name_of(key[0]), self._scene.ledger
        if name is None:
            return
        bounds = []
        for moment in (EARLIEST, LATEST):
            answer = await self._line.call(offsets_request(name, key[1], moment))
            one = answer.topics[0].partitions[0]
            if one.error_code:
                return
            bounds.append(one.offset)
        fleeting = ledger.partition(key).plan.fleeting  # The name may belong to another topic by now.
        sure = life == ledger.lives and key not in self._unsure and not fleeting
        if sure and bounds[0] <= position:
            raise Violation(
                "I14", f"{name_of(key)}: {position} is out of range; the log is from {bounds[0]} to {bounds[1]}"
            )
        self._positions[key] = bounds[0]
        self._unsure[key] = None


def _wanted(index: int, offset: int, max_bytes: int) -> FetchPartition:
    return FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)


def offsets_request(name: str, index: int, moment: int) -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=index, timestamp=moment)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[partition])])


def batches_in(key: Key, data: PartitionData) -> Iterator[DecodedBatch]:
    records = bytes(data.records or b"")
    count = 0
    try:
        for batch in decode_all(records):
            count += 1
            yield batch
    except BadBatch as bad:
        raise Violation("I23", f"{name_of(key)}: {bad}") from bad
    if records and not count:
        raise Violation("I8", f"{name_of(key)}: {len(records)} bytes without a whole batch")


class Damaged(Exception):
    """A response said that something cannot be read."""


async def read_all(
    line: Line, key: Key, *, committed: bool = False, unmarked: dict[int, int] | None = None
) -> tuple[dict[int, DecodedRecord], int, int]:
    """Every record of a partition, its start and its end. Raises `Damaged`, ClientError.

    `unmarked` gets the producers with a transaction without a marker, and its offset.
    """
    found: dict[int, DecodedRecord] = {}
    position, start = 0, 0
    while True:
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=int(committed),
            topics=[FetchTopic(topic_id=key[0], partitions=[_wanted(key[1], position, 1 << 20)])],
        )
        answer = await line.call(request)
        data = answer.responses[0].partitions[0]
        error = Error(data.error_code)
        if error is Error.OFFSET_OUT_OF_RANGE and position == 0:
            position = await _log_start(line, key)
            continue
        if error is not Error.NONE:
            raise Damaged(f"{name_of(key)} at {position}: {error.name}")
        start = data.log_start_offset
        before, end = position, data.last_stable_offset if committed else data.high_watermark
        for batch, is_committed in with_verdict(batches_in(key, data), data.aborted_transactions or ()):
            if is_committed or not (committed or batch.is_control):
                found.update({record.offset: record for record in batch.records})
            position = batch.last_offset + 1
            if unmarked is not None and batch.is_transactional and batch.records:
                unmarked[batch.producer_id] = batch.last_offset
                if batch.is_control:
                    del unmarked[batch.producer_id]
        if position >= end or position == before:
            return {offset: record for offset, record in found.items() if offset >= start}, start, end


async def _log_start(line: Line, key: Key) -> int:
    name = line.scene.name_of(key[0])
    if name is None:
        raise Damaged(f"{name_of(key)} is gone")
    answer = await line.call(offsets_request(name, key[1], EARLIEST))
    one = answer.topics[0].partitions[0]
    if one.error_code:
        raise Damaged(f"{name}-{key[1]}: {Error(one.error_code).name}")
    return int(one.offset)
