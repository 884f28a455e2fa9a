"""The commands of `ottla dlq`, and the checks of their arguments."""

import argparse
from typing import Final

from ottla.cli.dlq import redriving
from ottla.cli.dlq.inspection import inspect
from ottla.cli.dlq.letters import choice_from
from ottla.cli.errors import UserError
from ottla.cli.partitions import choice_of
from ottla.cli.remote import Command


def check(parsed: argparse.Namespace) -> None:
    """Raises UserError for mistakes that can be found without asking the cluster."""
    choice_of([parsed.topic], "TOPIC")
    choice = choice_from(parsed, 0)
    if None not in (choice.from_offset, choice.to_offset) and choice.from_offset >= choice.to_offset:  # type: ignore[operator]
        raise UserError(
            f"--from-offset {choice.from_offset} --to-offset {choice.to_offset}: no offset lies between them"
        )
    if parsed.command == "redrive":
        redriving.check(parsed)


COMMANDS: Final[dict[str, Command]] = {"inspect": inspect, "redrive": redriving.redrive}
