"""Keeps Python's garbage collector from blocking the event loop.

The collector stops everything while it walks over objects, and a node with ten thousand partitions has more than a
million: a full collection takes a quarter of a second.

Rule 1: objects that survived a full collection are frozen, so that the next one walks over new objects only. Unused
        objects are still freed at once by reference counting; only cycles need the collector, and requests and
        connections create none.
Rule 2: collections are small and frequent, rather than large and rare.
Rule 3: once a day all objects are collected, in case something did create cycles.
"""

import asyncio
import gc
from typing import Any

_YOUNG_MAX = 5_000
"""The number of new objects that triggers a collection."""
_YOUNG_COLLECTIONS = 3
_MIDDLE_COLLECTIONS = 1
_THAW_S = 24 * 3600.0


def keep_collections_short(loop: asyncio.AbstractEventLoop) -> None:
    """Called when a node has started: the objects loaded so far live as long as the node."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_MAX, _YOUNG_COLLECTIONS, _MIDDLE_COLLECTIONS)
    gc.callbacks.append(_freeze_survivors)
    _thaw_later(loop)


def _freeze_survivors(phase: str, info: dict[str, Any]) -> None:
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()


def _thaw_later(loop: asyncio.AbstractEventLoop) -> None:
    loop.call_later(_THAW_S, _thaw, loop)


def _thaw(loop: asyncio.AbstractEventLoop) -> None:
    gc.unfreeze()
    _thaw_later(loop)
