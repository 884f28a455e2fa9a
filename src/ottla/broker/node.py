"""A node: everything wired by hand.

Start: take the log directories, load the metadata, bring the logs in line with it, then listen. Stop: the other way
round, and the next start has nothing to recover.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from typing import Any

from ottla.broker.connection import SHARED_BUFFER_BYTES, Connection
from ottla.broker.connections import Connections
from ottla.broker.partition import Partition
from ottla.core.fetch_sessions import FetchSessions
from ottla.io.ports import Clock, Disk, Listener, Network, Random
from ottla.storage.store import LogStore
from ottla.storage.upkeep import Upkeep
from ottla.wire.errors import Error, Refused
from ottla.wire.types import NO_UUID
