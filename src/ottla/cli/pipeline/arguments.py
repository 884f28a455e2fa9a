"""The options of `ottla pipeline`."""

import argparse
from typing import Any


def add_pipeline(groups: "argparse._SubParsersAction[Any]") -> None:
    pipeline = groups.add_parser("pipeline", help="check a data pipeline and show its graph")
    commands = pipeline.add_subparsers(metavar="COMMAND", required=True)

    plan = commands.add_parser(
        "plan",
        help="check a pipeline and show its graph",
        description="Check everything about a pipeline that can be known before Spark starts, and show who reads from "
        "whom. Starts nothing and asks no cluster. Ends with 0 when nothing is wrong, 1 with mistakes, 2 when there is "
        "no such file.",
    )
    plan.add_argument("file", metavar="FILE", help="a pipeline in TOML, or a Python file that declares one")
    plan.add_argument("--json", action="store_true", help="one JSON object, for programs")
    plan.set_defaults(run=_plan)


def _plan(parsed: argparse.Namespace) -> int:
    from ottla.cli.pipeline import command

    return command.plan(parsed.file, as_json=parsed.json)
