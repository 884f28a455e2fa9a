"""No request, whatever it says, holds up the event loop or takes much memory: every API that is served, with very much
in it.

How long the loop is held is told in CPU time of its thread, which does not depend on what else the machine does. The
aim is 50 ms and 64 MiB; the bounds here leave room for slow machines (`python -m bench holds` prints the figures).
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3]))  # The benchmark is a package beside `src`.

from bench import sweep
from bench.holds import Measured, Watched, measure, prepare, watched_node
from nodes.ottla_node import MIB
from nodes.topics import QUICK_GROUPS

from ottla.broker.network.dispatch import ROUTES
from ottla.wire.api import ApiKey
from ottla.wire.api.metadata import MetadataRequest

HOLD_S_MAX = 0.4
MEMORY_MAX = 96 * MIB
SIZE = MIB // 4


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watched_node(tmp_path_factory.mktemp("swept"), QUICK_GROUPS) as started:
        yield started


@pytest.fixture(scope="module")
def topic_id(node: Watched) -> bytes:
    return prepare(node)


def told(one: Measured) -> str:
    answer = "closed" if one.answer is None else f"{one.answer} bytes"
    return f"{one.cpu_s * 1000:.0f} ms, {one.memory / MIB:.0f} MiB, {answer}: {one.request}"


@pytest.mark.parametrize("api", sorted(ROUTES), ids=lambda api: api.name)
def test_no_request_holds_up_the_loop_or_takes_much_memory(node: Watched, topic_id: bytes, api: ApiKey) -> None:
    found: list[Measured] = []
    for request in sweep.requests(SIZE, topic_id, thorough=False, only=api):
        if not found:
            node.ask(request.frame)  # What is imported and compiled is so once.
        found.append(measure(node, request))
        print(told(found[-1]))
    assert node.call(MetadataRequest(topics=[]), 12) is not None, "the node goes on"
    slow = [told(one) for one in found if one.cpu_s > HOLD_S_MAX]
    large = [told(one) for one in found if one.memory > MEMORY_MAX]
    assert found
    assert not slow, "\n".join(slow)
    assert not large, "\n".join(large)


def test_the_sweep_reaches_every_api_and_the_requests_are_wide(topic_id: bytes) -> None:
    """Guards the guard: requests that were refused for their form would prove nothing."""
    widest: dict[ApiKey, int] = {}
    for request in sweep.requests(SIZE, topic_id, thorough=False):
        widest[request.api] = max(widest.get(request.api, 0), len(request.frame))
    assert set(widest) == set(ROUTES)
    narrow = {api.name for api, size in widest.items() if size < SIZE // 2}
    assert narrow <= {
        *("API_VERSIONS", "HEARTBEAT", "INIT_PRODUCER_ID", "ADD_OFFSETS_TO_TXN", "END_TXN", "DESCRIBE_CLUSTER"),
    }, "these have no array"
