"""Publishes the positions of a running pipeline for tools that show lag, and computes the lag itself.

It has its own thread and connections. If the cluster does not answer, figures are missing, but no epoch fails.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final

from ottla.client.core.names import TopicPartition
from ottla.observe.trace import warn
from ottla.pipelines.run.consumed import publish_offsets
from ottla.pipelines.run.lag import Lag, LagTracker
from ottla.pipelines.source.read_options import read_options_of
from ottla.pipelines.source.topic_survey import TopicSurvey
from ottla.pipelines.spec.model import TopicSource
from ottla.rpc.errors import ClientError

EVERY_S: Final = 2.0
ConsumedOffsets = Mapping[TopicPartition, int]


class LagMonitor:
    def __init__(self, group_id: str, bootstrap: str, sources: Sequence[TopicSource]) -> None:
        self.lag: Lag | None = None
        self._group_id, self._bootstrap, self._sources = group_id, bootstrap, sources
        self._consumed: dict[TopicPartition, int] = {}
        self._published: dict[TopicPartition, int] = {}
        self._lags = LagTracker()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pipeline-watch", daemon=True)
        if sources:
            self._thread.start()

    def consumed(self, by_query: Sequence[ConsumedOffsets]) -> None:
        """Note each partition's lowest position over the queries that read it."""
        least: dict[TopicPartition, int] = {}
        for offsets in by_query:
            for partition, offset in offsets.items():
                least[partition] = min(least.get(partition, offset), offset)
        self._consumed = least

    def close(self) -> None:
        """Publish the last positions and end."""
        self._closing.set()
        if self._sources:
            self._thread.join()

    def _run(self) -> None:
        surveys = [TopicSurvey(read_options_of(source, self._bootstrap)) for source in self._sources]
        try:
            while not self._closing.wait(EVERY_S):
                self._look(surveys)
            self._look(surveys)
        finally:
            for survey in surveys:
                survey.close()

    def _look(self, surveys: Sequence[TopicSurvey]) -> None:
        consumed = self._consumed
        try:
            if consumed != self._published:
                publish_offsets(self._bootstrap, self._group_id, consumed)
                self._published = dict(consumed)
            logs = {partition: log for survey in surveys for partition, log in survey.logs().items()}
        except (ClientError, OSError) as error:
            warn("pipeline.lag_unknown", group=self._group_id, reason=str(error))
            return
        starts = {partition: log.start for partition, log in logs.items()}
        ends = {partition: log.end for partition, log in logs.items()}
        self.lag = self._lags.look(int(time.time() * 1000), starts, ends, consumed)
