"""Python's garbage collector, kept from holding up the event loop.

The collector stops everything while it walks over objects, and a node with ten thousand partitions has more than a
million: a full collection takes a quarter of a second.

Rule 1: what has survived a full collection is frozen, so that the next one walks over what is new since. What is no
        longer used still goes at once, by its count of references; only cycles need the collector, and requests and
        connections leave none.
Rule 2: collections are small and frequent, rather than large and rare.
Rule 3: once a day all objects are looked at, in case something did leave cycles.
"""

import asyncio
import gc
from typing import Any

_YOUNG_MAX = 5_000
"""How many objects may come to be before the collector looks at them."""
_YOUNG_COLLECTIONS = 3
_MIDDLE_COLLECTIONS = 1
_THAW_S = 24 * 3600.0


def keep_collections_short(loop: asyncio.AbstractEventLoop) -> None:
    """When a node has started: what it has loaded lives as long as it does."""
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
