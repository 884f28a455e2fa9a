"""Batches that are checked but not written yet. The batches of a partition are written with one system call.

Many small writes cost several times as much as one large write: each call looks up its pages, and most calls write
again the page in which the previous call ended.

Rule 1: between the first request that is taken and `write`, a partition changes only by taking further requests. Any
        other operation on a partition, and any other response on a connection, comes after a `write`.
Rule 2: the kernel takes a request as a whole, or changes nothing. If it does not take a request and others were taken
        before, those are written and the request is tried once more, because a run may have reached its end.
Rule 3: `write` answers all requests that were taken, in the order they were taken. If a partition failed, the response
        has the refusal for that partition, and the offsets of the others.
Rule 4: the received bytes stay in place until `write`.
"""

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.broker.fastpath.known_topics import KnownTopic, KnownTopics
from ottla.broker.handlers.produce import refused
from ottla.core.log.append_run import AppendRun
from ottla.kernel import AT_ONCE_MAX, ProduceAsk, take_produce_requests
from ottla.observe.trace import warn
from ottla.wire.api import ApiKey
from ottla.wire.errors import Refused
from ottla.wire.frame import Request, decode_request, decode_response, encode_response

if TYPE_CHECKING:
    from ottla.broker.partitions.partition import Partition
    from ottla.io.ports import Clock

_SIZE = Struct(">i")


class Asker(Protocol):
    """The connection that a request came from, as far as it is needed to answer the request."""

    peer: str

    def answered(self, answers: bytes) -> None: ...

    def broken(self, error: Exception) -> None: ...

    def close(self) -> None: ...


class Taken(NamedTuple):
    """Requests that are answered when their batches are written."""

    asker: Asker
    data: memoryview
    start: int
    end: int
    answers: bytes


class _Begun(NamedTuple):
    partition: "Partition"
    run: AppendRun


Failures = dict[tuple[str | bytes, int], Exception]
"""The failure of a partition, by topic and partition index. Each has two entries: by topic name and by topic id."""


class Appends:
    def __init__(self, topics: KnownTopics, clock: "Clock") -> None:
        self._topics = topics
        self._clock = clock
        self._begun: dict[tuple[KnownTopic, int], _Begun] = {}
        self._taken: list[Taken] = []

    def take(self, asker: Asker, data: memoryview, position: int, batches_max: int) -> int | None:
        """Take the Produce requests from `position` on, which is where the size of the first is; `write` appends and
        answers them.

        Returns where they end; None if the first has to be handled the normal way (`handlers/produce`)."""
        end = self._take(asker, data, position, batches_max)
        if end is None and self._taken:
            self.write()
            end = self._take(asker, data, position, batches_max)
        return end

    def _take(self, asker: Asker, data: memoryview, position: int, batches_max: int) -> int | None:
        by_name, by_id, now_ms = self._topics.by_name, self._topics.by_id, self._clock.wall_ms()
        taken = take_produce_requests(data, position, by_name, by_id, now_ms, batches_max, AT_ONCE_MAX)
        if taken[3]:
            if not all(map(self._prepare, taken[3])):
                return None
            taken = take_produce_requests(data, position, by_name, by_id, now_ms, batches_max, AT_ONCE_MAX)
        end, answers, parts, _ = taken
        if end == position:
            return None
        begun = self._begun
        for part in parts:
            topic, index, place, _, _, _ = part
            begun[topic, index].run.add(part)
            topic.places[index] = place
        # Equivalent to calling Taken, in half the time.
        self._taken.append(tuple.__new__(Taken, (asker, data, position, end, answers)))
        return end

    def _prepare(self, ask: ProduceAsk) -> bool:
        """Provide what the kernel asks for: the place of the next batch in the partition, and the next sequence of the
        producer. Returns False if that is not possible; then the request is handled the normal way."""
        topic, index, producer_id, epoch, sequence = ask
        begun = self._begun.get((topic, index)) or self._begin(topic, index)
        return begun is not None and (producer_id < 0 or begun.run.admit(producer_id, epoch, sequence))

    def _begin(self, topic: KnownTopic, index: int) -> _Begun | None:
        partition = self._topics.partition(topic, index)
        if partition is None:
            return None
        try:
            run = partition.begin_run()
        except Refused:
            return None  # The log directory is offline: the normal handler gives the error.
        rules = partition.log.rules
        if (run is None and not partition.takes_runs) or (rules is not topic.rules and rules != topic.rules):
            self._topics.forget(topic)
            return None
        if run is None:
            return None
        topic.places[index] = run.place
        begun = self._begun[topic, index] = _Begun(partition, run)
        return begun

    def write(self) -> None:
        """Append the batches of all requests that were taken, and answer the requests."""
        if not self._begun:
            return
        begun, self._begun = self._begun, {}
        taken, self._taken = self._taken, []
        failures: Failures = {}
        for (topic, index), (partition, run) in begun.items():
            del topic.places[index]
            if run.size:
                try:
                    partition.append_run(run)
                except Exception as error:
                    failures[topic.name, index] = failures[topic.topic_id, index] = error
        for one in taken:
            if failures:
                _answer_each(one, failures)
            elif one.answers:
                one.asker.answered(one.answers)


def _answer_each(taken: Taken, failures: Failures) -> None:
    """Answer requests one by one, because some of their batches could not be written."""
    asker, data, position, end, answers = taken
    answered = 0
    while position < end:
        after = position + _SIZE.size + _SIZE.unpack_from(data, position)[0]
        request = decode_request(data[position + _SIZE.size : after])
        start = answered
        if request.body.acks:
            answered += _SIZE.size + _SIZE.unpack_from(answers, start)[0]
        _answer_one(asker, request, answers[start:answered], failures)
        position = after


def _answer_one(asker: Asker, request: Request, answer: bytes, failures: Failures) -> None:
    failed = [
        failures.get((topic.name or topic.topic_id, one.index))
        for topic in request.body.topic_data
        for one in topic.partition_data
    ]
    unforeseen = next((error for error in failed if error is not None and not isinstance(error, Refused)), None)
    if unforeseen is not None:
        asker.broken(unforeseen)
        return
    refusals = [error if isinstance(error, Refused) else None for error in failed]
    first = next((refusal for refusal in refusals if refusal is not None), None)
    if first is None:
        if answer:
            asker.answered(answer)
    elif not answer:  # With acks=0 there is no response that could contain the error.
        warn("produce.refused", peer=asker.peer, reason=first.brief)
        asker.close()
    else:
        correlation_id, response = decode_response(ApiKey.PRODUCE, request.version, answer[_SIZE.size :])
        left = iter(refusals)
        for topic in response.responses:
            topic.partition_responses = [
                one if refusal is None else refused(one.index, refusal)
                for one, refusal in zip(topic.partition_responses, left, strict=False)
            ]
        asker.answered(b"".join(encode_response(response, request.version, correlation_id)))
