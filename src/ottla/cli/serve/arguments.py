"""The options of `ottla serve`."""

import argparse
from typing import Any


def add_serve(groups: Any) -> None:
    serve: argparse.ArgumentParser = groups.add_parser(
        "serve",
        help="run a node",
        description="Run a node in the foreground until it is told to stop (Ctrl-C or SIGTERM). FILE is Kafka's own "
        "server.properties; without one the node listens on 127.0.0.1:9092 and keeps its data in ./data.",
    )
    serve.add_argument("file", metavar="FILE", nargs="?", help="a server.properties file")
    serve.add_argument("--data-dir", metavar="DIR", help="where the data is kept (log.dirs)")
    serve.add_argument("--listener", metavar="HOST:PORT", help="where clients connect; port 0 takes any free one")
    serve.add_argument(
        "--set", dest="settings", metavar="KEY=VALUE", action="append", default=[], help="a setting; may be repeated"
    )
    serve.add_argument(
        "--insecure", action="store_true", help="listen beyond this machine without TLS and authentication"
    )
    serve.set_defaults(run=_run)


def _run(parsed: argparse.Namespace) -> int:
    from ottla.cli.serve.command import ServeOptions, serve

    return serve(ServeOptions(parsed.file, parsed.data_dir, parsed.listener, parsed.settings, parsed.insecure))
