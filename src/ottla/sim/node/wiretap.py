"""I18, checked on the disk: a record that is acknowledged in a topic with syncs is durable at that moment.

Every response to a Produce is read when it is sent. At this moment the worst power loss, which leaves only synced
bytes, must leave the batch: its directory, its segment, its bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct, unpack_from

import crc32c

from ottla.sim.machine.disk import SimDisk
from ottla.sim.machine.network import SimTransport
from ottla.sim.node.ledger import Key, Ledger, name_of
from ottla.sim.node.scene import Scene
from ottla.sim.played import Violation
from ottla.wire.api import ApiKey
from ottla.wire.api.produce import ProduceResponse
from ottla.wire.frame import BadFrame, decode_response, split_frames

_FRAME_BYTES_MAX = 1 << 20
_REQUEST = Struct(">hhi")
_BATCH = Struct(">qi")
_OVERHEAD, _CRC, _CRC_FROM, _LAST_OFFSET_DELTA = 12, 17, 21, 23


@dataclass(slots=True)
class _Talk:
    """One connection, seen from the node's end."""

    asked: bytearray = field(default_factory=bytearray)
    answered: bytearray = field(default_factory=bytearray)
    produced: dict[int, int] = field(default_factory=dict)
    """Versions of Produce requests by correlation id."""
    is_garbage: bool = False


class Wiretap:
    def __init__(
        self, scene: Scene, directories: list[str], disk: Callable[[], SimDisk], report: Callable[[Exception], None]
    ) -> None:
        self._scene = scene
        self._directories = directories
        self._disk = disk
        self._report = report
        self._talks: dict[SimTransport, _Talk] = {}
        self._found_at: dict[str, int] = {}
        """By segment: where the last batch was found."""

    def wrote(self, transport: SimTransport, data: bytes | bytearray | memoryview) -> None:
        """Read the bytes that a transport sends, and check the responses to Produce requests in them."""
        is_node = transport.host.name == "node"
        talk = self._talks.setdefault(transport if is_node else transport.peer, _Talk())
        if talk.is_garbage:
            return
        unread = talk.answered if is_node else talk.asked
        unread += data
        try:
            frames, end = split_frames(bytes(unread), _FRAME_BYTES_MAX)
        except BadFrame:
            talk.is_garbage = True
            return
        for frame in frames:
            if is_node:
                self._answered(talk, frame)
            elif len(frame) >= _REQUEST.size:
                api_key, version, correlation_id = _REQUEST.unpack_from(frame)
                if api_key == ApiKey.PRODUCE:
                    talk.produced[correlation_id] = version
        del unread[:end]

    def _answered(self, talk: _Talk, frame: memoryview) -> None:
        version = talk.produced.pop(unpack_from(">i", frame)[0], None)
        if version is None:
            return
        answer: ProduceResponse = decode_response(ApiKey.PRODUCE, version, frame)[1]
        for topic in answer.responses:
            live = self._scene.topics.get(topic.name)
            topic_id = topic.topic_id if any(topic.topic_id) or live is None else live.topic_id
            for one in topic.partition_responses:
                if not one.error_code and one.base_offset >= 0:
                    self._check((topic_id, one.index), one.base_offset)

    def _check(self, key: Key, offset: int) -> None:
        history = self._ledger.partitions.get(key)
        # The files of a topic that is re-created may belong to the next one by now.
        if history is None or not history.plan.is_synced or history.plan.fleeting:
            return
        if not any(self._holds(f"{one}/{history.plan.name}-{key[1]}", offset) for one in self._directories):
            self._report(Violation("I18", f"{name_of(key)}: {offset} was acknowledged, and is not on the disk"))

    @property
    def _ledger(self) -> Ledger:
        return self._scene.ledger

    def _holds(self, directory: str, offset: int) -> bool:
        disk = self._disk()
        segments = [int(name[:-4]) for name in disk.durable_names(directory) if name.endswith(".log")]
        if not segments:
            return False
        if offset < segments[0]:
            return True  # It was a repetition, and the batch was removed long ago.
        base = max(one for one in segments if one <= offset)
        path = f"{directory}/{base:020}.log"
        data = disk.durable(path) or b""
        return self._find(path, data, offset, from_=self._found_at.get(path, 0)) or self._find(path, data, offset)

    def _find(self, path: str, data: bytes, offset: int, from_: int = 0) -> bool:
        """Whether the batch is there, or was before cleaning: then a later one is."""
        position = from_
        while position + _CRC_FROM <= len(data):
            base, length = _BATCH.unpack_from(data, position)
            if base > offset:
                return from_ == 0
            end = position + _OVERHEAD + length
            if end > len(data) or length <= 0:
                return False
            if offset <= base + unpack_from(">i", data, position + _LAST_OFFSET_DELTA)[0]:
                self._found_at[path] = position
                (crc,) = unpack_from(">I", data, position + _CRC)
                return bool(crc32c.crc32c(data[position + _CRC_FROM : end]) == crc)
            position = end
        return False
