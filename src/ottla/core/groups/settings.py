"""The settings of groups and offsets."""

from dataclasses import dataclass

from ottla.config import Config
from ottla.config.groups import (
    GROUP_INITIAL_REBALANCE_DELAY_MS,
    GROUP_MAX_SESSION_TIMEOUT_MS,
    GROUP_MAX_SIZE,
    GROUP_MIN_SESSION_TIMEOUT_MS,
    OFFSET_METADATA_MAX_BYTES,
    OFFSETS_RETENTION_CHECK_INTERVAL_MS,
    OFFSETS_RETENTION_MINUTES,
)

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class GroupSettings:
    session_timeout_ms_min: int
    session_timeout_ms_max: int
    initial_rebalance_delay_ms: int
    members_max: int
    offset_metadata_bytes_max: int
    offsets_retention_ms: int
    offsets_check_interval_ms: int
    group_bytes_max: int
    """Largest size of the record of a classic group. A larger record does not fit into a batch."""

    @classmethod
    def of(cls, config: Config, message_bytes_max: int) -> "GroupSettings":
        return cls(
            session_timeout_ms_min=config[GROUP_MIN_SESSION_TIMEOUT_MS],
            session_timeout_ms_max=config[GROUP_MAX_SESSION_TIMEOUT_MS],
            initial_rebalance_delay_ms=config[GROUP_INITIAL_REBALANCE_DELAY_MS],
            members_max=config[GROUP_MAX_SIZE],
            offset_metadata_bytes_max=config[OFFSET_METADATA_MAX_BYTES],
            offsets_retention_ms=config[OFFSETS_RETENTION_MINUTES] * _MINUTE_MS,
            offsets_check_interval_ms=config[OFFSETS_RETENTION_CHECK_INTERVAL_MS],
            group_bytes_max=message_bytes_max,
        )
