"""How far a pipeline has come, told to the cluster, so that every tool that shows the lag of groups shows it.

Nothing is ever read back from there: the checkpoint alone says where a pipeline goes on.
"""

import asyncio
from collections.abc import Mapping

from ottla.client.client import Client
from ottla.client.core.names import TopicPartition
from ottla.client.group_offsets import commit_offsets


def publish_offsets(bootstrap: str, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit them for the group. Raises ClientError: nothing is lost by that but the figures, until the next time.

    Spark tells them as `endOffset` of a source, in the JSON of a query's progress: `ranges.from_document` reads that.
    """
    if offsets:
        asyncio.run(_publish(bootstrap, group_id, offsets))


async def _publish(bootstrap: str, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    async with Client(bootstrap, client_id=group_id) as client:
        for failure in (await commit_offsets(client, group_id, offsets)).values():
            if failure is not None:
                raise failure
