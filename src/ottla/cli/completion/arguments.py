"""The options of `ottla completion`."""

import argparse
from typing import Any

SHELLS = ("bash", "zsh", "tcsh")


def add_completion(groups: "argparse._SubParsersAction[Any]") -> None:
    completion = groups.add_parser(
        "completion",
        help="print a script for the shell's completion",
        description="Print a script with which the shell completes Ottla's commands and options.",
        epilog="bash: ottla completion bash > ~/.local/share/bash-completion/completions/ottla. "
        "zsh: ottla completion zsh > a file _ottla in a directory of $fpath. Then open a new shell.",
    )
    completion.set_defaults(run=_run)
    completion.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))


def _run(parsed: argparse.Namespace) -> int:
    import shtab

    from ottla.cli import parser

    print(shtab.complete(parser(), shell=parsed.shell))
    return 0
