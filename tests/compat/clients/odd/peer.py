"""One of the two servers that are asked: its connection, and what it gave."""

import time
from itertools import count
from typing import Any, Final

from nodes.wire import Wire

from odd.values import resolved
from ottla.wire.api import ApiKey
from ottla.wire.api.api_versions import ApiVersionsRequest
from ottla.wire.api.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from ottla.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.errors import Error
from ottla.wire.schema import message_of

CLOSED: Final = "<closed the connection>"
NO_ANSWER: Final = "<no answer>"
WAITS: Final = "<does not answer>"
PATIENCE_S: Final = 60
ANSWER_S: Final = 15
"""No request asks for a wait that is nearly as long."""
_CLIENT_METRICS: Final = 16
_METADATA: Final = DescribeQuorumRequest(
    topics=[RequestTopicData(topic_name="__cluster_metadata", partitions=[RequestPartitionData(partition_index=0)])]
)
_marks = count(1000)


class NotSettled(Exception):
    """A server did not come to a state in time."""


class Peer:
    def __init__(self, name: str, bootstrap: str) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self._wire: Wire | None = None
        self.given: dict[tuple[str, str], Any] = {}
        """By kind and name: what this server chose for something that both have."""

    def close(self) -> None:
        if self._wire is not None:
            self._wire.socket.close()
            self._wire = None

    @property
    def wire(self) -> Wire:
        if self._wire is None:
            self._wire = Wire(self.bootstrap)
            self._wire.socket.settimeout(PATIENCE_S)
        return self._wire

    # Asking.

    def ask(self, request: Any, version: int) -> Any:
        """The answer, or in a word what came instead of one."""
        own = resolved(request, self)
        try:
            if message_of(type(request)).api_key == ApiKey.PRODUCE and request.acks == 0:
                self.wire.send(own, version)
                self.call(ApiVersionsRequest(), 0)  # Answered only if the connection has outlived the request.
                return NO_ANSWER
            self.wire.socket.settimeout(ANSWER_S)
            answer = self.wire.call(own, version)
            self.wire.socket.settimeout(PATIENCE_S)
            return answer
        except ConnectionError:
            self.close()
            return CLOSED
        except TimeoutError:
            self.close()
            return WAITS

    def call(self, request: Any, version: int) -> Any:
        """The answer to a request that is sound."""
        return self.wire.call(resolved(request, self), version)

    # Waiting.

    def wait(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise NotSettled(f"{self.name}: {what}: not within {PATIENCE_S} s")
            time.sleep(0.005)

    def settle_metadata(self) -> None:
        """Until the broker acts on all that the controller has answered.

        Kafka's broker learns of a change after the client. It takes changes one after the other, and shows the offset
        of one before it has acted on it. So a second change is made when the first can be seen: once that can be seen
        too, the first has been acted on.
        """
        self._see_metadata()
        self._write_mark()
        self._see_metadata()

    def _see_metadata(self) -> None:
        (topic,) = self.call(_METADATA, 0).topics
        wanted = topic.partitions[0].high_watermark - 1
        self.wait(
            lambda: self.call(ApiVersionsRequest(**_SOFTWARE), 3).finalized_features_epoch >= wanted,
            f"metadata up to offset {wanted}",
        )

    def _write_mark(self) -> None:
        value = AlterableConfig(name="interval.ms", config_operation=0, value=str(next(_marks)))
        resource = AlterConfigsResource(resource_type=_CLIENT_METRICS, resource_name="mark", configs=[value])
        told = self.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        assert told.responses[0].error_code == Error.NONE, told


_SOFTWARE: Final = {"client_software_name": "odd", "client_software_version": "1"}
