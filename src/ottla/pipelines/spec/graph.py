"""The graph of a pipeline: which sources and steps each step reads. Sinks are not in it: nothing reads them."""

from collections.abc import Iterable, Mapping

from ottla.pipelines.spec.model import Pipeline

Inputs = Mapping[str, tuple[str, ...]]
"""The inputs of every source (none) and step, by name."""


def inputs_of(pipeline: Pipeline) -> dict[str, tuple[str, ...]]:
    sources: dict[str, tuple[str, ...]] = {source.name: () for source in pipeline.sources}
    return sources | {step.name: step.inputs for step in pipeline.steps}


def in_order(inputs: Inputs) -> list[str]:
    """The names of sources and steps, each after its inputs. Steps in a cycle, and those after them, are left out."""
    done: dict[str, None] = {}
    while ready := [
        name
        for name, read in inputs.items()
        if name not in done and all(one in done or one not in inputs for one in read)
    ]:
        done |= dict.fromkeys(ready)
    return list(done)


def upstream(inputs: Inputs, names: Iterable[str]) -> set[str]:
    """The names, and all sources and steps whose rows reach them."""
    found = set[str]()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in inputs and name not in found:
            found.add(name)
            waiting += inputs[name]
    return found


def cycle(inputs: Inputs) -> list[str]:
    """One cycle, with its first name repeated at the end; empty if there is none."""
    ordered = set(in_order(inputs))
    left = [name for name in inputs if name not in ordered]
    if not left:
        return []
    way = [left[0]]
    while True:
        # Everything left has an input that is left too, so this walk must return to a name it has passed.
        before = next(one for one in inputs[way[-1]] if one in inputs and one not in ordered)
        if before in way:
            return [before, *reversed(way[way.index(before) :])]
        way.append(before)
