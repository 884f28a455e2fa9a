"""`ottla pipeline plan`."""

import sys
from collections.abc import Iterable

from ottla.cli import FINDINGS
from ottla.cli.pipeline.files import load
from ottla.cli.plain import json_line
from ottla.pipelines import InvalidPipeline, Pipeline, PipelineIdentity, Problem, spec_hash
from ottla.pipelines.authoring.document import to_document
from ottla.pipelines.spec.graph import in_order, inputs_of

_HASH_SHOWN = 12


def plan(path: str, *, as_json: bool) -> int:
    try:
        pipeline = load(path)
    except InvalidPipeline as invalid:
        return _refused(path, invalid.problems, as_json=as_json)
    if as_json:
        sys.stdout.write(json_line(_facts(pipeline)))
    else:
        _show(pipeline)
    return 0


def _refused(path: str, problems: Iterable[Problem], *, as_json: bool) -> int:
    problems = tuple(problems)
    if as_json:
        sys.stdout.write(json_line({"problems": [_problem(problem) for problem in problems]}))
        return FINDINGS
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"ottla: {path}: {len(problems)} mistake{'s' if len(problems) != 1 else ''}", file=sys.stderr)
    return FINDINGS


def _problem(problem: Problem) -> dict[str, object]:
    return {
        "file": problem.place.file,
        "line": problem.place.line,
        "key": problem.key,
        "value": problem.value if isinstance(problem.value, bool | int | float | str | list | dict | None) else None,
        "message": problem.told,
        "allowed": problem.allowed,
    }


def _facts(pipeline: Pipeline) -> dict[str, object]:
    inputs = inputs_of(pipeline)
    kinds = {source.name: "source" for source in pipeline.sources}
    nodes = [{"kind": kinds.get(name, "step"), "name": name, "from": list(inputs[name])} for name in in_order(inputs)]
    nodes += [{"kind": "sink", "name": sink.name, "from": [sink.input]} for sink in pipeline.sinks]
    return {
        "name": pipeline.name,
        "group": PipelineIdentity(pipeline.name).group_id,
        "hash": spec_hash(pipeline),
        "nodes": nodes,
        "pipeline": to_document(pipeline),
    }


def _show(pipeline: Pipeline) -> None:
    from ottla.cli.pipeline.description import described
    from ottla.cli.tables import TableColumn, print_table, stdout

    console = stdout()
    facts = [
        ("Delivery", str(pipeline.delivery)),
        ("Group", PipelineIdentity(pipeline.name).group_id),
        ("Checkpoint", pipeline.checkpoint),
        ("Hash", spec_hash(pipeline)[:_HASH_SHOWN]),
    ]
    console.print(pipeline.name, style="bold", markup=False)
    for title, value in facts:
        console.print(f"{title:<12}{value}", markup=False, soft_wrap=True)
    console.print()
    columns = [TableColumn("Part"), TableColumn("Name"), TableColumn("Reads"), TableColumn("What", wraps=True)]
    print_table(console, columns, described(pipeline))
