"""`python -m bench`: measure everything and keep it in RESULTS.md. `python -m bench codec read`: only print these.

`python -m bench --keep broker` measures one part and puts it in the place of the one in RESULTS.md.
`python -m bench --load "commit 50" coordinators` measures those loads of a part alone whose names have this in them.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from bench import (
    append,
    broker,
    codec,
    coordinators,
    growth_connections,
    growth_groups,
    growth_length,
    growth_partitions,
    holds,
    kernel,
    lookup,
    matrix,
    opening,
    pipelines,
    read,
    recovery,
)
from bench.report import RESULTS, Section, facts, keep_files, page, with_new
from bench.sizes import FULL, Sizes

PARTS: dict[str, Callable[[Sizes], Section]] = {
    "codec": codec.run,
    "kernel": kernel.run,
    "append": append.run,
    "read": read.run,
    "recovery": recovery.run,
    "opening": opening.run,
    "lookup": lookup.run,
    "broker": broker.run,
    "reference": broker.run_reference,
    "matrix": matrix.run,
    "partitions": growth_partitions.run,
    "connections": growth_connections.run,
    "length": growth_length.run,
    "groups": growth_groups.run,
    "coordinators": coordinators.run,
    "holds": holds.run,
    "pipelines": pipelines.run,
}
WITH_LOADS = ("matrix", "coordinators", "holds", "pipelines")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one of {', '.join(PARTS)}; all without any")
    parser.add_argument("--keep", action="store_true", help="keep the parts named in RESULTS.md, beside the others")
    parser.add_argument("--load", default="", help=f"only loads with this in their names; of {' or '.join(WITH_LOADS)}")
    given = parser.parse_args(arguments)
    wanted = given.parts
    if given.load and (given.keep or len(wanted) != 1 or wanted[0] not in WITH_LOADS):
        parser.error(f"--load is for looking at {' or '.join(WITH_LOADS)}: name one alone, without --keep")
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    measured = facts()
    print("\n".join(measured), flush=True)
    sections = []
    for name in wanted or PARTS:
        started = time.perf_counter()
        section = PARTS[name](replace(FULL, load=given.load))
        section.seconds = time.perf_counter() - started
        print(f"\n{section.text()}\n\n({name}: {section.seconds:.0f} s)", flush=True)
        sections.append(section)
    if given.keep or not wanted:
        RESULTS.write_text(with_new(RESULTS.read_text(), sections, measured) if wanted else page(sections, measured))
        keep_files(sections)
        print(f"\nkept in {RESULTS.parent.name}/{RESULTS.name}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to stop"))  # Started processes are stopped on the way out.
    main()
