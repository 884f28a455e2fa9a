"""The names by which a cluster knows a pipeline.

Rule 1: all names derive from the pipeline's name alone. A run that takes over has the same names as the run before it,
        and fences it by using them.
Rule 2: every task of a sink has its own transactional id. Its marker, which says which epoch it wrote last, is the
        committed offset of a group with the same name.
Rule 3: a replay has its own identity, so that it neither fences the live run nor moves its offsets. Names of pipelines
        and sinks contain no dot and no @, so two identities never have a name in common.
"""

from dataclasses import dataclass
from typing import Final

DEAD_LETTER_SINK: Final = "dead_letter"
"""The sink name under which dead letters are written; no other sink may have it."""


@dataclass(frozen=True)
class PipelineIdentity:
    pipeline: str
    replay: str = ""

    @property
    def group_id(self) -> str:
        """The group whose committed offsets show how far the pipeline has read."""
        return f"pipeline.{self.pipeline}@{self.replay}" if self.replay else f"pipeline.{self.pipeline}"

    def transactional_id(self, sink: str, task: int) -> str:
        return f"{self.group_id}.{sink}.{task}"

    def marker_group_id(self, sink: str, task: int) -> str:
        return self.transactional_id(sink, task)
