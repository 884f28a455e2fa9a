"""The names by which a cluster knows a pipeline.

Rule 1: they come from the pipeline's name and nothing else: a run that takes over has the names of the run before,
        and fences it by using them.
Rule 2: a task of a sink has a transactional id of its own, and the marker that says which epoch it finished last is
        the committed offset of a group of the same name.
Rule 3: a replay has an identity of its own, so that it neither fences the live run nor moves its offsets. Names of
        pipelines and sinks have no dot and no @, so no two identities are ever alike.
"""

from dataclasses import dataclass
from typing import Final

DEAD_LETTER_SINK: Final = "dead_letter"
"""Dead letters are written under this name; no sink may have it."""


@dataclass(frozen=True)
class Identity:
    pipeline: str
    replay: str = ""

    @property
    def group_id(self) -> str:
        """Where the offsets that were consumed are published, for every tool that shows lag."""
        return f"pipeline.{self.pipeline}@{self.replay}" if self.replay else f"pipeline.{self.pipeline}"

    def transactional_id(self, sink: str, task: int) -> str:
        return f"{self.group_id}.{sink}.{task}"

    def marker_group_id(self, sink: str, task: int) -> str:
        return self.transactional_id(sink, task)
