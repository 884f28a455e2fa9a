"""`ottla pipeline status`, `list` and `stop`. They use the files in a run's checkpoint and need no Spark."""

import os
import platform
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Final

from ottla.cli import FINDINGS
from ottla.cli.errors import FAILED, UserError
from ottla.cli.pipeline.display import lines, rendered
from ottla.cli.pipeline.files import directory_of, load_valid
from ottla.cli.plain import json_line
from ottla.cli.tables import TableColumn, number, print_table, stdout
from ottla.cli.times import shown_duration
from ottla.pipelines.run.checkpoint import Checkpoint, CheckpointRefused, RunStatus
from ottla.pipelines.run.process import is_running
from ottla.pipelines.spec.paths import resolved

RUNNING: Final = ("starting", "running")
DIED: Final = "died"
_CHECKPOINTS: Final = "checkpoints"
_EVERY_S: Final = 1.0
_LOOK_S: Final = 0.1


class NotStopped(UserError):
    """The pipeline was asked to stop and still runs."""

    code = FAILED


def status(where: str, *, watch: bool, as_json: bool) -> int:
    checkpoint = _checkpoint(where)
    told = _status(checkpoint)
    if watch and not as_json and stdout().is_terminal:
        return _watch(checkpoint)
    _say(told, as_json=as_json)
    while watch and told.state in RUNNING:
        time.sleep(_EVERY_S)
        told = _status(checkpoint)
        _say(told, as_json=as_json)
    return _code(told)


def list_pipelines(directory: str, *, as_json: bool) -> int:
    found = list(_found(directory))
    if as_json:
        for told in found:
            sys.stdout.write(json_line(asdict(told)))
        return 0
    if not found:
        print(f"{directory} has no checkpoint of a pipeline", file=sys.stderr)
        return 0
    columns = [
        TableColumn("Pipeline"),
        TableColumn("State"),
        number("Epoch"),
        number("Lag"),
        TableColumn("Updated"),
        TableColumn("Reason"),
    ]
    print_table(stdout(), columns, map(_row, found))
    return 0


def stop(where: str, *, timeout_s: float) -> int:
    checkpoint = _checkpoint(where)
    told = _status(checkpoint)
    if told.state not in RUNNING:
        print(f"{told.pipeline} is not running: it {_ended(told)}")
        return 0
    if told.host == platform.node() and is_running(told.pid, told.pid_started):
        os.kill(told.pid, signal.SIGTERM)
    else:
        checkpoint.ask_to_stop()  # A run on another machine looks for a file.
    deadline = time.monotonic() + timeout_s
    while (now := _status(checkpoint)).run == told.run and now.state in RUNNING:
        if time.monotonic() > deadline:
            raise NotStopped(
                f"{told.pipeline} was asked to stop and still runs after {timeout_s:g} s: process {told.pid} on "
                f"{told.host} is writing an epoch. It stops after that; ending the process loses nothing either"
            )
        time.sleep(_LOOK_S)
    print(f"{told.pipeline} {_ended(now)}")
    return 0 if now.state != "failed" else FINDINGS


def _ended(told: RunStatus) -> str:
    epochs = ", ".join(f"{name} {sink.epoch}" for name, sink in told.sinks.items() if sink.epoch >= 0)
    last = f" (last epochs: {epochs})" if epochs else ""
    if told.state == DIED:
        return f"died without a message{last}: process {told.pid} is gone; run it again, it resumes from its checkpoint"
    reason = f": {told.reason}" if told.reason else ""
    return f"{ {'finished': 'has finished', 'failed': 'has failed'}.get(told.state, 'has stopped') }{last}{reason}"


def _watch(checkpoint: Checkpoint) -> int:
    from rich.live import Live

    with Live(console=stdout(), auto_refresh=False) as live:
        while True:
            told = _status(checkpoint)
            live.update(rendered(told), refresh=True)
            if told.state not in RUNNING:
                return _code(told)
            time.sleep(_EVERY_S)


def _say(told: RunStatus, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json_line(asdict(told)))
    elif stdout().is_terminal:
        stdout().print(rendered(told))
    else:
        print("\n".join(lines(told)))
    sys.stdout.flush()


def _code(told: RunStatus) -> int:
    return FINDINGS if told.state in ("failed", DIED) else 0


def _checkpoint(where: str) -> Checkpoint:
    try:
        if os.path.isfile(where):
            return Checkpoint(resolved(directory_of(where), load_valid(where).checkpoint))
        if os.path.isdir(where):
            return Checkpoint(where)
        named = os.path.join(_CHECKPOINTS, where)
        if os.path.isdir(named):
            return Checkpoint(named)
    except CheckpointRefused as refused:
        raise UserError(str(refused)) from None
    raise UserError(f"{where} is neither a pipeline's file nor a checkpoint, and {named} does not exist")


def _status(checkpoint: Checkpoint) -> RunStatus:
    told = _told(checkpoint)
    if told is None:
        raise UserError(f"{checkpoint.directory}: no pipeline has run with this checkpoint yet")
    return told


def _told(checkpoint: Checkpoint) -> RunStatus | None:
    """The status that the run wrote; DIED if its process on this machine is gone without having written an end."""
    try:
        told = checkpoint.status()
    except CheckpointRefused as refused:
        raise UserError(str(refused)) from None
    if told is None or told.state not in RUNNING or told.host != platform.node():
        return told
    return told if is_running(told.pid, told.pid_started) else replace(told, state=DIED)


def _found(directory: str) -> Iterator[RunStatus]:
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return
    except OSError as error:
        raise UserError(f"{directory}: {error.strerror or error}") from None
    for name in names:
        told = _told(Checkpoint(os.path.join(directory, name)))
        if told is not None:
            yield told


def _row(told: RunStatus) -> tuple[str, ...]:
    epochs = [sink.epoch for sink in told.sinks.values()]
    lag = "-" if told.lag_records is None else f"{told.lag_records:,}"
    ago = f"{shown_duration(max(0, int(time.time() * 1000) - told.updated_ms))} ago"
    return told.pipeline, told.state, str(min(epochs, default=-1)), lag, ago, told.reason
