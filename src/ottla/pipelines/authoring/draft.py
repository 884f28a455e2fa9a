"""A pipeline while its document is read. None stands for a part that has a mistake."""

from dataclasses import dataclass, field

from ottla.pipelines.spec.model import DeliveryGuarantee, Errors, Sink, Source, Step
from ottla.pipelines.spec.problems import Path
from ottla.pipelines.spec.sql import Query


@dataclass
class StepDraft:
    place: int
    name: str
    step: Step | None = None
    query: Query | None = None

    @property
    def path(self) -> Path:
        return ("step", self.place)


@dataclass
class PipelineDraft:
    delivery: DeliveryGuarantee
    errors: Errors
    sources: dict[str, Source | None] = field(default_factory=dict)
    steps: list[StepDraft] = field(default_factory=list)
    sinks: dict[str, Sink | None] = field(default_factory=dict)

    def names(self) -> list[str]:
        """The names of all sources and steps, also of those with mistakes."""
        return [*self.sources, *(step.name for step in self.steps)]

    def spelt(self, name: str) -> str:
        """The name as it was declared: queries may write it in any case."""
        return next((known for known in self.names() if known.lower() == name.lower()), name)

    def is_whole(self) -> bool:
        return None not in (*self.sources.values(), *self.sinks.values(), *(one.step for one in self.steps))
