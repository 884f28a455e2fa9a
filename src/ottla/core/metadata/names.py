"""The rules for names of topics, which are those of Kafka.

Rule 1: 1 to 249 letters, digits, dots, underscores and hyphens; never "." or "..": a topic is a directory.
Rule 2: names that differ only in "." and "_" collide, because metrics write both the same way.
"""

import re
from typing import Final

from ottla.core.log.files import METADATA_TOPIC
from ottla.wire.errors import Error, Refused

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
CLUSTER_METADATA: Final = METADATA_TOPIC
_INTERNAL: Final = (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)

_LENGTH_MAX: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def is_internal(name: str) -> bool:
    return name in _INTERNAL


def name_fault(name: str) -> str | None:
    """The reason why the name is invalid; None if it is valid."""
    if not name:
        return "a topic needs a name"
    if name in (".", ".."):
        return f"a topic cannot be named {name!r}"
    if len(name) > _LENGTH_MAX:
        return f"the topic's name has {len(name)} characters, at most {_LENGTH_MAX} are allowed: {name!r}"
    if not _LEGAL.fullmatch(name):
        return f"the topic's name {name!r} has other characters than letters, digits, '.', '_' and '-' of ASCII"
    return None


def check_name(name: str) -> None:
    if fault := name_fault(name):
        raise Refused(Error.INVALID_TOPIC_EXCEPTION, fault)


def collision_key(name: str) -> str | None:
    """A key that is equal for names that collide; None for a name that cannot collide."""
    return name.replace(".", "_") if "." in name or "_" in name else None
