"""`make demo`. It ends with 0 when every event is accounted for, with 1 when not, with 130 after Ctrl-C."""

import argparse
import asyncio
import logging
import sys
import tempfile
from pathlib import Path

from examples.shop.demo import WRONG, Demo
from ottla.pipelines.run.requirements import MissingRequirement, require_spark


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description="Run the shop's pipeline from end to end.")
    parser.add_argument("--events", type=int, default=60_000, help="how many; default 60000")
    parser.add_argument("--seconds", type=float, default=20.0, help="in which the shop's day passes; default 20")
    parser.add_argument("--no-postgres", action="store_true", help="write to topics alone")
    given = parser.parse_args()
    if given.events < 1 or given.seconds < 0:
        parser.error(
            f"--events {given.events} --seconds {given.seconds:g}: expected at least one event, and no less than 0 s"
        )
    try:
        require_spark()
    except MissingRequirement as missing:
        print(f"make demo: {missing}", file=sys.stderr)
        return WRONG
    with tempfile.TemporaryDirectory(prefix="ottla-demo-", ignore_cleanup_errors=True) as home:
        logging.basicConfig(filename=f"{home}/demo.log", level=logging.WARNING)
        return asyncio.run(Demo(Path(home), given.events, given.seconds).run(postgres=not given.no_postgres))


if __name__ == "__main__":
    sys.exit(main())
