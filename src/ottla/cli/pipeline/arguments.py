"""The options of `ottla pipeline`."""

import argparse
from typing import Any

from ottla.cli.arguments import add_json, positive_seconds

_FILE_HELP = "a pipeline in TOML, or a Python file that declares one"
_WHERE_HELP = "the pipeline's file, its checkpoint directory, or its name if ./checkpoints has one of that name"


def add_pipeline(groups: "argparse._SubParsersAction[Any]") -> None:
    pipeline = groups.add_parser("pipeline", help="check, run and watch data pipelines")
    commands = pipeline.add_subparsers(metavar="COMMAND", required=True)
    _add_plan(commands)
    _add_run(commands)
    _add_replay(commands)
    _add_watching(commands)


def _add_plan(commands: "argparse._SubParsersAction[Any]") -> None:
    plan = commands.add_parser(
        "plan",
        help="check a pipeline and show its graph",
        description="Check everything about a pipeline that can be known before Spark starts, and show the graph of "
        "its sources, steps and sinks. Starts nothing and asks no cluster. Exit status: 0 without mistakes, 1 with "
        "mistakes, 2 if there is no such file.",
    )
    plan.add_argument("file", metavar="FILE", help=_FILE_HELP)
    plan.add_argument("--json", action="store_true", help="one JSON object, for programs")
    plan.set_defaults(run=_plan)


def _add_run(commands: "argparse._SubParsersAction[Any]") -> None:
    run = commands.add_parser(
        "run",
        help="run a pipeline",
        description="Run a pipeline until it is stopped (Ctrl-C, SIGTERM, `ottla pipeline stop`), or with --once until "
        "it has caught up. Needs Java and the extra ottla[spark]. Exit status: 0 when it was stopped or has caught up, "
        "1 when it failed, 2 when it cannot be run with these arguments.",
    )
    run.add_argument("--once", action="store_true", help="stop when everything that is available now is processed")
    _add_engine(run)
    run.set_defaults(run=_run)


def _add_replay(commands: "argparse._SubParsersAction[Any]") -> None:
    replay = commands.add_parser(
        "replay",
        help="run a pipeline over a span of the past",
        description="Compute the pipeline over the records between two times, as one epoch. It has its own checkpoint "
        "and identity, so a live run is not affected. The same replay is written once, however often it is run.",
    )
    times = "a time such as 2026-11-15T20:44:46 (UTC), @MILLISECONDS, or how long ago, as in 15m"
    replay.add_argument("--from", dest="from_time", metavar="TIME", required=True, help=f"the first record: {times}")
    replay.add_argument("--to", dest="to_time", metavar="TIME", default="0s", help="where it ends; default now")
    replay.add_argument(
        "--as", dest="replay", metavar="NAME", default="", help="another name, to write the same replay once more"
    )
    _add_engine(replay)
    replay.set_defaults(run=_replay)


def _add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help=_FILE_HELP)
    parser.add_argument("-b", "--bootstrap", metavar="HOST:PORT", default="", help="instead of the pipeline's own")
    parser.add_argument("--checkpoint", metavar="PATH", default="", help="instead of the pipeline's own")
    parser.add_argument(
        "--master", metavar="MASTER", default="local[*]", help="Spark's: spark://..., k8s://..., yarn; default local[*]"
    )
    parser.add_argument(
        "--conf", metavar="NAME=VALUE", action="append", default=[], help="a setting of Spark; repeatable"
    )
    parser.add_argument("--json", action="store_true", help="the status as JSON, a line each time")


def _add_watching(commands: "argparse._SubParsersAction[Any]") -> None:
    status = commands.add_parser(
        "status",
        help="show the status of a pipeline",
        description="Show the status of a pipeline, as its run wrote it to the checkpoint. Exit status: 0 when it runs "
        "or has ended without an error, 1 when it failed or died, 2 when there is no such pipeline.",
    )
    status.add_argument("where", metavar="PIPELINE", help=_WHERE_HELP)
    status.add_argument("-w", "--watch", action="store_true", help="keep showing it until Ctrl-C")
    add_json(status)
    status.set_defaults(run=_status)

    listed = commands.add_parser("list", help="list the pipelines that have a checkpoint in a directory")
    listed.add_argument("directory", metavar="DIRECTORY", nargs="?", default="checkpoints", help="default checkpoints")
    add_json(listed)
    listed.set_defaults(run=_list)

    stop = commands.add_parser(
        "stop",
        help="stop a pipeline",
        description="Ask a pipeline to stop and wait until it has. It finishes the epoch that it is writing. Nothing "
        "is lost: the next run continues from there.",
    )
    stop.add_argument("where", metavar="PIPELINE", help=_WHERE_HELP)
    stop.add_argument(
        "--timeout", type=positive_seconds, default=60.0, metavar="SECONDS", help="wait no longer than this; default 60"
    )
    stop.set_defaults(run=_stop)


def _plan(parsed: argparse.Namespace) -> int:
    from ottla.cli.pipeline import command

    return command.plan(parsed.file, as_json=parsed.json)


def _run(parsed: argparse.Namespace) -> int:
    from ottla.cli.pipeline import running

    return running.run(parsed)


def _replay(parsed: argparse.Namespace) -> int:
    from ottla.cli.pipeline import running

    return running.replay(parsed)


def _status(parsed: argparse.Namespace) -> int:
    from ottla.cli.pipeline import watching

    return watching.status(parsed.where, watch=parsed.watch, as_json=parsed.json)


def _list(parsed: argparse.Namespace) -> int:
    from ottla.cli.pipeline import watching

    return watching.list_pipelines(parsed.directory, as_json=parsed.json)


def _stop(parsed: argparse.Namespace) -> int:
    from ottla.cli.pipeline import watching

    return watching.stop(parsed.where, timeout_s=parsed.timeout)
