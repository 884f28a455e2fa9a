"""The settings of consumer groups: those of the broker, and the group's own settings that override them."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from ottla.config import Config, Setting
from ottla.config.groups import (
    CONSUMER_ASSIGNMENT_INTERVAL_MS,
    CONSUMER_HEARTBEAT_INTERVAL_MS,
    CONSUMER_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS,
    GROUP_CONSUMER_ASSIGNORS,
    GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_MAX_SIZE,
    GROUP_CONSUMER_MIGRATION_POLICY,
    GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
    GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS,
    GROUP_CONSUMER_SESSION_TIMEOUT_MS,
    GROUP_MAX_SIZE,
)
from ottla.core.groups.consumer.assignors import ASSIGNORS
from ottla.core.metadata.image import GROUP, Image

_UPGRADES: Final = ("UPGRADE", "BIDIRECTIONAL")
_DOWNGRADES: Final = ("DOWNGRADE", "BIDIRECTIONAL")


class ConsumerSettings:
    """Reads settings at every use, because a group's settings and some of the broker's may change at any time."""

    def __init__(self, config: Callable[[], Config], image: Image) -> None:
        self._config = config
        self._image = image

    @property
    def assignors(self) -> Sequence[str]:
        """The configured assignors that exist here, the default first. The setting may also name other Java classes,
        which are ignored."""
        return _served(self._config()[GROUP_CONSUMER_ASSIGNORS])

    @property
    def members_max(self) -> int:
        return self._config()[GROUP_CONSUMER_MAX_SIZE]

    @property
    def classic_members_max(self) -> int:
        return self._config()[GROUP_MAX_SIZE]

    @property
    def regex_refresh_interval_ms(self) -> int:
        return self._config()[GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS]

    @property
    def may_upgrade(self) -> bool:
        return self._policy in _UPGRADES

    @property
    def may_downgrade(self) -> bool:
        return self._policy in _DOWNGRADES

    @property
    def may_mix(self) -> bool:
        """Whether members of the classic protocol may join a consumer group."""
        return self._policy in (*_UPGRADES, *_DOWNGRADES)

    @property
    def _policy(self) -> str:
        return self._config()[GROUP_CONSUMER_MIGRATION_POLICY].upper()

    def session_timeout_ms(self, group_id: str) -> int:
        return self._of(
            group_id,
            CONSUMER_SESSION_TIMEOUT_MS,
            GROUP_CONSUMER_SESSION_TIMEOUT_MS,
            GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
            GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
        )

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return self._of(
            group_id,
            CONSUMER_HEARTBEAT_INTERVAL_MS,
            GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
            GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
            GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
        )

    def assignment_interval_ms(self, group_id: str) -> int:
        return self._of(
            group_id,
            CONSUMER_ASSIGNMENT_INTERVAL_MS,
            GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS,
            GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
            GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,
        )

    def _of(
        self,
        group_id: str,
        own: Setting[int],
        brokers: Setting[int],
        at_least: Setting[int],
        at_most: Setting[int],
    ) -> int:
        """The group's own value, or else the broker's. The own value is limited to the current bounds, which may have
        been tightened since it was set."""
        config = self._config()
        groups_own = self._image.configs.get((GROUP, group_id))
        text = None if groups_own is None else groups_own.get(own.name)
        return config[brokers] if text is None else min(max(int(text), config[at_least]), config[at_most])


@lru_cache
def _served(named: tuple[str, ...]) -> Sequence[str]:
    known = [_SHORT_NAMES.get(name, name) for name in named]
    return tuple(name for name in known if name in ASSIGNORS) or tuple(ASSIGNORS)


_SHORT_NAMES: Final = {
    f"org.apache.kafka.coordinator.group.assignor.{name.capitalize()}Assignor": name for name in ASSIGNORS
}
