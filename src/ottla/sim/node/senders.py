"""Writing clients: idempotent with retries, plain with every acks, and those that send invalid batches."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ottla.rpc.errors import ClientError
from ottla.sim.node.ledger import Key, Sent, name_of, text_of
from ottla.sim.node.scene import Line, Scene, record_of
from ottla.sim.played import Violation
from ottla.sim.records import CODECS, encode
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.wire.errors import Error

ALL = -1
BY_NAME = 12
"""The last version of Produce that names topics."""
_LOST_COUNT = (Error.OUT_OF_ORDER_SEQUENCE_NUMBER, Error.UNKNOWN_PRODUCER_ID, Error.INVALID_PRODUCER_EPOCH)
_NOT_THERE = (Error.UNKNOWN_TOPIC_ID, Error.UNKNOWN_TOPIC_OR_PARTITION)
_REFUSED_AGAIN = (*_LOST_COUNT, *_NOT_THERE, Error.DUPLICATE_SEQUENCE_NUMBER, Error.KAFKA_STORAGE_ERROR)


@dataclass(slots=True, eq=False)
class OutgoingBatch:
    where: Key
    records: list[Sent]
    data: bytes


def request_of(scene: Scene, batches: Sequence[OutgoingBatch], acks: int) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=5_000,
        topic_data=[
            TopicProduceData(
                name=scene.name_of(batch.where[0]) or "",
                topic_id=batch.where[0],
                partition_data=[PartitionProduceData(index=batch.where[1], records=bytearray(batch.data))],
            )
            for batch in batches
        ],
    )


def answers_of(response: Any) -> list[PartitionProduceResponse]:
    """The results of the batches, in the order of the request: each batch has its own topic entry."""
    return [one for topic in response.responses for one in topic.partition_responses]


def settle(scene: Scene, batch: OutgoingBatch, answer: PartitionProduceResponse, life: int) -> Error:
    """Record a response in the ledger."""
    error = Error(answer.error_code)
    if error is Error.NONE:
        for index, sent in enumerate(batch.records):
            scene.ledger.acked(sent, answer.base_offset + index, life=life, now=scene.now)
    elif error is not Error.KAFKA_STORAGE_ERROR:  # This error leaves open what is on the disk.
        for sent in batch.records:
            scene.ledger.refused(sent, error.name)
    return error


class Idempotent:
    """Up to five batches in flight, retried in order until a response comes."""

    def __init__(self, scene: Scene, name: str) -> None:
        self._scene = scene
        self._name = name
        self._line = Line(scene, name)
        self._identity: tuple[int, int] | None = None
        self._life = 0
        """The node's life when the identity was new."""
        self._sequences: dict[Key, int] = {}
        self._pending: list[OutgoingBatch] = []
        self._depth = scene.random.choice((1, 3, 5))
        self._records_max = scene.random.choice((1, 3, 6))

    async def run(self) -> None:
        scene = self._scene
        while not scene.ending or self._pending:
            try:
                await self._round()
            except ClientError:
                await scene.pause(0.5)
            await scene.pause(0.3)
        self._line.hang_up()

    async def _round(self) -> None:
        if self._identity is None:
            self._life = self._scene.ledger.lives
            self._identity = await self._new_identity()
            self._sequences.clear()
        keys = self._scene.all_keys()
        while keys and len(self._pending) < self._depth and not self._scene.ending:
            self._pending.append(self._make(self._scene.random.choice(keys)))
        requests = _requests(self._pending)
        life = self._scene.ledger.lives
        for batch in self._pending:
            for sent in batch.records:
                sent.attempts += 1
        connection = await self._line.connection()
        calls = [
            asyncio.ensure_future(connection.call(request_of(self._scene, batches, ALL), timeout_ms=2_500))
            for batches in requests
        ]
        if self._scene.random.random() < 0.03:
            await asyncio.sleep(0)
            self._line.hang_up()  # A client that dies; its requests may still arrive.
        results: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
        lost_count = False
        for batches, result in zip(requests, results, strict=True):
            if isinstance(result, ProduceResponse):
                for batch, answer in zip(batches, answers_of(result), strict=True):
                    lost_count = not self._answered(batch, answer, life) or lost_count
            elif not isinstance(result, ClientError):
                raise result
        if lost_count:
            self._identity = None
            self._pending.clear()  # Their outcome is unknown.
        elif self._scene.random.random() < 0.1 and requests:
            await self._send_again(requests[-1][-1])

    def _answered(self, batch: OutgoingBatch, answer: PartitionProduceResponse, life: int) -> bool:
        """Record a response. Returns whether the sequences are still valid."""
        error = settle(self._scene, batch, answer, life)
        if error is Error.KAFKA_STORAGE_ERROR:
            return True
        if error is not Error.NONE and error not in (*_LOST_COUNT, *_NOT_THERE):
            raise Violation("I10", f"a good batch for {name_of(batch.where)} was refused: {error.name}")
        if error in _LOST_COUNT and self._depth == 1 and self._must_know(batch.where, self._life):
            raise Violation("I3", f"{name_of(batch.where)}: the next batch of its producer was refused: {error.name}")
        self._pending.remove(batch)
        return error is Error.NONE

    async def _send_again(self, batch: OutgoingBatch) -> None:
        """Send an acknowledged batch again, as a client does that did not get the response."""
        if batch in self._pending:
            return
        life = self._scene.ledger.lives
        for sent in batch.records:
            sent.attempts += 1
        [answer] = answers_of(await self._line.call(request_of(self._scene, [batch], ALL)))
        error = settle(self._scene, batch, answer, life)
        # It was its producer's last batch, which is remembered as long as the log has it.
        known = self._must_know(batch.where, life) and error in _LOST_COUNT
        if known or (error is not Error.NONE and error not in _REFUSED_AGAIN):
            raise Violation("I3", f"a batch for {name_of(batch.where)}, sent again, was refused: {error.name}")

    def _must_know(self, where: Key, life: int) -> bool:
        """Whether the node must remember the last batch: nothing was lost or removed since."""
        history = self._scene.ledger.partition(where)
        kept = not history.start_asked and history.plan.retention_ms < 0
        return kept and self._scene.ledger.counts(where, life)

    async def _new_identity(self) -> tuple[int, int]:
        answer = await self._line.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))
        if answer.error_code:
            await self._scene.pause(1)
            raise ClientError(Error(answer.error_code).name)
        return answer.producer_id, answer.producer_epoch

    def _make(self, where: Key) -> OutgoingBatch:
        assert self._identity is not None
        random = self._scene.random
        records = [self._scene.new_record(where, self._name) for _ in range(random.randint(1, self._records_max))]
        sequence = self._sequences.get(where, 0)
        self._sequences[where] = sequence + len(records)
        data = encode(
            [record_of(sent, delta) for delta, sent in enumerate(records)],
            codec=random.choice(CODECS),
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            base_sequence=sequence,
        )
        return OutgoingBatch(where, records, data)


def _requests(pending: list[OutgoingBatch]) -> list[list[OutgoingBatch]]:
    """Divide the batches into requests, in order. A request has each partition at most once."""
    requests: list[list[OutgoingBatch]] = []
    for batch in pending:
        if not requests or any(batch.where == other.where for other in requests[-1]):
            requests.append([])
        requests[-1].append(batch)
    return requests


class Plain:
    """Without a producer id: every acks, only the connection's order, and sometimes a second attempt."""

    def __init__(self, scene: Scene, name: str) -> None:
        self._scene = scene
        self._name = name
        self._line = Line(scene, name)
        self._tries_again = scene.random.random() < 0.3
        self._by_name = scene.random.random() < 0.5

    async def run(self) -> None:
        scene = self._scene
        while not scene.ending:
            keys = scene.all_keys(fleeting=not self._by_name)
            try:
                if keys:
                    await self._send(scene.random.choice(keys), scene.random.choice((0, 1, ALL)))
            except ClientError:
                await scene.pause(0.5)
            await scene.pause(0.3)
        self._line.hang_up()

    async def _send(self, where: Key, acks: int) -> None:
        scene = self._scene
        records = [
            scene.new_record(where, self._name, once=not self._tries_again) for _ in range(scene.random.randint(1, 4))
        ]
        data = encode([record_of(sent, delta) for delta, sent in enumerate(records)], codec=scene.random.choice(CODECS))
        batch = OutgoingBatch(where, records, data)
        for _ in range(2 if self._tries_again else 1):
            try:
                await self._attempt(batch, acks)
                return
            except ClientError:
                await scene.pause(1)

    async def _attempt(self, batch: OutgoingBatch, acks: int) -> None:
        for sent in batch.records:
            sent.attempts += 1
        life, at_most = self._scene.ledger.lives, BY_NAME if self._by_name else None
        request = request_of(self._scene, [batch], acks)
        if acks == 0:
            await (await self._line.connection()).tell(request, at_most=at_most)
            return
        [answer] = answers_of(await self._line.call(request, at_most=at_most))
        error = settle(self._scene, batch, answer, life)
        if error is not Error.NONE and error not in (*_NOT_THERE, Error.KAFKA_STORAGE_ERROR):
            raise Violation("I10", f"a good batch for {name_of(batch.where)} was refused: {error.name}")


class Bad:
    """Sends invalid batches; a refused one must never be read."""

    def __init__(self, scene: Scene, name: str) -> None:
        self._scene = scene
        self._name = name
        self._line = Line(scene, name)

    async def run(self) -> None:
        scene = self._scene
        while not scene.ending:
            keys = scene.all_keys()
            try:
                if keys:
                    await self._send(scene.random.choice(keys))
            except ClientError:
                await scene.pause(0.5)
            await scene.pause(0.6)
        self._line.hang_up()

    async def _send(self, where: Key) -> None:
        scene = self._scene
        wrong = scene.random.choice(("corrupt", "cut", "topic", "acks", "size", "gap"))
        if wrong == "gap":
            await self._send_gap(where)
            return
        sent = scene.new_record(where, self._name, size=30_000 if wrong == "size" else None)
        if wrong == "size" and sent.value is None:
            return
        data = bytearray(encode([record_of(sent, 0)]))
        acks, target = ALL, where
        if wrong == "corrupt":
            data[scene.random.randrange(17, len(data))] ^= 1 << scene.random.randrange(8)
        elif wrong == "cut":
            del data[scene.random.randrange(70, len(data)) :]
        elif wrong == "topic":
            target = (scene.random.randbytes(16), 0)
        elif wrong == "acks":
            acks = 2
        await self._attempt(OutgoingBatch(target, [sent], bytes(data)), acks, wrong)

    async def _attempt(self, batch: OutgoingBatch, acks: int, wrong: str) -> Error:
        life = self._scene.ledger.lives
        for sent in batch.records:
            sent.attempts += 1
        [answer] = answers_of(await self._line.call(request_of(self._scene, [batch], acks)))
        error = Error(answer.error_code)
        if error is Error.NONE and wrong:
            raise Violation("I10", f"{text_of(batch.records[0])} was accepted: wrong {wrong}")
        return settle(self._scene, batch, answer, life)

    async def _send_gap(self, where: Key) -> None:
        """A sequence gap, from a producer that the log must remember."""
        scene = self._scene
        answer = await self._line.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))
        if answer.error_code:
            return
        life = scene.ledger.lives
        for sequence in (0, 7):
            sent = scene.new_record(where, self._name)
            data = encode(
                [record_of(sent, 0)], producer_id=answer.producer_id, producer_epoch=0, base_sequence=sequence
            )
            history = scene.ledger.partition(where)
            remembered = life == scene.ledger.lives and not history.start_asked and history.plan.retention_ms < 0
            wrong = "gap" if sequence and remembered else ""
            if await self._attempt(OutgoingBatch(where, [sent], data), ALL, wrong) is not Error.NONE:
                return
