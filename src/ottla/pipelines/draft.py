"""A pipeline while it is read: what could be understood of it so far. None stands for what could not."""

from dataclasses import dataclass, field

from ottla.pipelines.problems import Path
from ottla.pipelines.spec import Delivery, Errors, Sink, Source, Step
from ottla.pipelines.sql import Query


@dataclass
class DraftStep:
    place: int
    name: str
    step: Step | None = None
    query: Query | None = None

    @property
    def path(self) -> Path:
        return ("step", self.place)


@dataclass
class Draft:
    delivery: Delivery
    errors: Errors
    sources: dict[str, Source | None] = field(default_factory=dict)
    steps: list[DraftStep] = field(default_factory=list)
    sinks: dict[str, Sink | None] = field(default_factory=dict)

    def names(self) -> list[str]:
        """What can be read from, whether it was understood or not."""
        return [*self.sources, *(step.name for step in self.steps)]

    def spelt(self, name: str) -> str:
        """The name as it was given where it was declared: queries may write it in letters of either case."""
        return next((known for known in self.names() if known.lower() == name.lower()), name)

    def is_whole(self) -> bool:
        return None not in (*self.sources.values(), *self.sinks.values(), *(one.step for one in self.steps))
