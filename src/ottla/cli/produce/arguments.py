"""The options of `ottla produce`."""

import argparse
from typing import Any

from ottla.cli.arguments import add_cluster, at_least_one

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = {"0": 0, "1": 1, "all": -1}


def add_produce(groups: "argparse._SubParsersAction[Any]") -> None:
    produce = groups.add_parser(
        "produce",
        help="send lines as records",
        description="Send each line of standard input, or of a file, as a record. Equal keys go to the same partition.",
    )
    produce.set_defaults(run=_run)
    produce.add_argument("topic", metavar="TOPIC")
    add_cluster(produce)
    source = produce.add_argument_group("what to send")
    source.add_argument("-f", "--file", metavar="FILE", help="read from FILE instead of standard input")
    source.add_argument("-K", "--key-separator", metavar="TEXT", help="what stands before TEXT in a line is its key")
    source.add_argument("-k", "--key", metavar="KEY", help="one key for all records")
    source.add_argument(
        "-H", "--header", action="append", default=[], metavar="NAME=VALUE", help="a header of all records; repeatable"
    )
    source.add_argument("--null", metavar="TEXT", help="a line, or key, that is TEXT stands for null: a tombstone")
    source.add_argument(
        "--json",
        action="store_true",
        help="lines are JSON objects with value, key, headers, timestamp, partition, as `consume --json` prints them",
    )
    source.add_argument("-p", "--partition", type=int, metavar="N", help="the partition of all records")
    way = produce.add_argument_group("how to send it")
    way.add_argument("-z", "--codec", choices=CODECS, default="none", help="compress batches; default none")
    way.add_argument(
        "--acks", choices=list(ACKS), default="all", help="who must have a record: 0 nobody, 1 the leader, default all"
    )
    way.add_argument("--batch-bytes", type=at_least_one, default=65_536, metavar="N", help="batch size; default 65536")
    way.add_argument(
        "--linger-ms", type=int, default=5, metavar="MS", help="how long a batch waits for more; default 5"
    )
    way.add_argument(
        "--record-bytes", type=at_least_one, default=1_048_588, metavar="N", help="largest record; default 1048588"
    )
    way.add_argument("-q", "--quiet", action="store_true", help="say nothing when all went well")


def _run(parsed: argparse.Namespace) -> int:
    from ottla.cli.produce.command import produce, rules_of
    from ottla.cli.remote import run_remote

    return run_remote(produce, parsed, rules_of)
