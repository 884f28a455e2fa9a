"""Publishes a pipeline's positions as committed offsets of its group, for tools that show the lag of groups.

They are never read back: a pipeline resumes from its checkpoint alone.
"""

import asyncio
from collections.abc import Mapping

from ottla.client.client import Client
from ottla.client.core.names import TopicPartition
from ottla.client.group_offsets import commit_offsets


def publish_offsets(bootstrap: str, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit the offsets for the group. Raises ClientError; then only the figures are out of date."""
    if offsets:
        asyncio.run(_publish(bootstrap, group_id, offsets))


async def _publish(bootstrap: str, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    async with Client(bootstrap, client_id=group_id) as client:
        for failure in (await commit_offsets(client, group_id, offsets)).values():
            if failure is not None:
                raise failure
