"""The controller of the cluster: it decides requests on the metadata, in the process that leads the metadata log.

Rule 1: a decision sees everything that was decided before it, committed or not. `_image` holds that state. It starts
        as a copy of the committed image when this node becomes the controller, and is dropped when it no longer is.
        Everything else on the node sees the publisher's image, which holds only what is committed.
Rule 2: a response is sent when its records are committed, together with all earlier records that it may have seen.
Rule 3: a decision changes the state only by its records. They are appended as one batch: all of them count or none.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from ottla.broker.controller.publisher import MetadataPublisher
from ottla.broker.controller.raft_log import RaftLog
from ottla.broker.network.backlog import Budget
from ottla.config import MIN_INSYNC_REPLICAS, Config
from ottla.core.metadata.features import LATEST_LEVEL, activate
from ottla.core.metadata.image import Image
from ottla.core.metadata.topics import Surroundings
from ottla.core.runtime.decision import Decision
from ottla.io.ports import Random
from ottla.wire.errors import Error, Refused
from ottla.wire.uuids import uuid_to_text

R = TypeVar("R")

_RESERVED_BELOW = 100  # Kafka reserves the first hundred ids, read as numbers.


class Controller:
    def __init__(
        self,
        raft_log: RaftLog,
        publisher: MetadataPublisher,
        *,
        config: Callable[[], Config],
        random: Random,
        new_id: Callable[[], bytes],
    ) -> None:
        self._raft_log = raft_log
        self._publisher = publisher
        self._config = config
        self._random = random
        self._new_id = new_id
        self._image: Image | None = None
        """The metadata as decided so far, committed or not; None while this node is not the controller."""

    # Becoming and ceasing to be the controller.

    async def take_office(self) -> None:
        """Become the controller in a new epoch. Returns when the first records of the epoch are committed."""
        self._raft_log.begin_epoch()
        # All records appended before this epoch are committed in a quorum of one, and therefore in the image.
        self._image = self._publisher.image.copy()
        bootstrap = [] if self._image.level else self._raft_log.bootstrap_records()
        min_isr = self._config()[MIN_INSYNC_REPLICAS]
        await self.decide_and_commit(lambda image: activate(image, bootstrap, min_isr))

    def leave_office(self) -> None:
        """Stop being the controller: drop all decisions that are not committed."""
        self._image = None

    # Deciding.

    @property
    def config(self) -> Config:
        return self._config()

    @property
    def surroundings(self) -> Surroundings:
        """The inputs of decisions about topics that are not in the image: settings, random numbers, new topic ids."""
        return Surroundings(self._config(), self._random, self._new_topic_id)

    @property
    def next_offset(self) -> int:
        """The offset of the first record that the next decision writes."""
        return self._raft_log.end_offset

    @property
    def image(self) -> Image:
        """The metadata as decided so far. Raises Refused if this node is not the controller."""
        self._raft_log.check_usable()
        if self._image is None:
            raise Refused(Error.NOT_CONTROLLER, "this node is not the controller")
        return self._image

    def decide(self, decide: Callable[[Image], Decision[R]]) -> R:
        """Decide and append the records. The reply may be sent after `committed`. Exceptions of `decide` propagate."""
        image = self.image
        decision = decide(image)
        if decision.records:
            self._raft_log.append(decision.records, image.level or LATEST_LEVEL)
            for record in decision.records:
                image.replay(record)
        return decision.reply

    async def committed(self) -> None:
        """Wait until everything decided so far is committed, and published on this node."""
        await self._raft_log.committed()

    async def decide_and_commit(self, decide: Callable[[Image], Decision[R]]) -> R:
        reply = self.decide(decide)
        await self.committed()
        return reply

    def _new_topic_id(self) -> bytes:
        """A random id that Kafka does not reserve, and whose text does not begin with a hyphen: command-line tools
        would parse it as an option."""
        while True:
            topic_id = self._new_id()
            if int.from_bytes(topic_id, "big") >= _RESERVED_BELOW and not uuid_to_text(topic_id).startswith("-"):
                return topic_id


class ControllerCall(NamedTuple):
    """The context in which a request is decided."""

    controller: Controller
    version: int
    budget: Budget
