"""Runs a command against a cluster, and reports errors."""

import argparse
import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable

from ottla.cli.errors import ClusterError, UserError
from ottla.client.client import Client
from ottla.client.core.errors import Misused, RecordTooLarge
from ottla.rpc.errors import ClientError, Declined, Unreachable
from ottla.wire.errors import Error

Command = Callable[[Client, argparse.Namespace], Awaitable[int]]

_UNKNOWN_TOPIC = (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID)


def run_remote(
    command: Command, parsed: argparse.Namespace, check: Callable[[argparse.Namespace], object] | None = None
) -> int:
    """Run `command` with a client of the cluster that --bootstrap names; returns its exit code.

    `check` validates the options first and raises UserError, without a broker.
    """
    if check is not None:
        check(parsed)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="ottla: %(message)s")
    try:
        return asyncio.run(_with_client(command, parsed))
    except Misused as error:
        raise UserError(error_text(error)) from None
    except ClientError as error:
        raise ClusterError(error_text(error)) from None


async def _with_client(command: Command, parsed: argparse.Namespace) -> int:
    timeout_ms = int(parsed.timeout * 1000)
    async with Client(
        parsed.bootstrap, client_id="ottla-cli", request_timeout_ms=timeout_ms, api_timeout_ms=timeout_ms
    ) as client:
        await client.brokers.any()  # One attempt without retries, because the user waits at the terminal.
        return await command(client, parsed)


def error_text(error: ClientError, advice: str | None = None) -> str:
    """The error text, followed by advice for a user of the command line."""
    advice = _advice(error) if advice is None else advice
    return f"{error.what}\n       {advice}" if advice else error.what


def complain(error: ClientError, advice: str | None = None) -> None:
    """Print an error of one of several items; the others continue."""
    print(f"ottla: {error_text(error, advice)}", file=sys.stderr)


def _advice(error: ClientError) -> str:
    cause = getattr(error, "cause", error)
    if isinstance(cause, Unreachable):
        return "Start a node with `ottla serve`, or name a broker that runs with --bootstrap HOST:PORT."
    if isinstance(cause, RecordTooLarge):
        return "Raise max.message.bytes of the topic and --record-bytes, or send smaller records."
    if isinstance(cause, Declined) and cause.error in _UNKNOWN_TOPIC and cause.subject.startswith("topic "):
        name = cause.subject.removeprefix("topic ")
        return f"`ottla topic list` shows what exists; `ottla topic create {name}` makes it."
    if isinstance(cause, Declined) and cause.error is Error.OFFSET_OUT_OF_RANGE:
        return "Use --from beginning, --from end, or an offset that is still there."
    return error.advice
