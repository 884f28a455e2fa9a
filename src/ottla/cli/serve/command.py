"""Implements `ottla serve`."""

import asyncio
import ipaddress
import logging
import os
import random
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ottla import kernel
from ottla.broker.network.tuning.machine import MachineTuning
from ottla.broker.node import Node
from ottla.cli.errors import FAILED, UserError
from ottla.cli.serve.garbage import keep_collections_short
from ottla.config import (
    SOCKET_LISTEN_BACKLOG_SIZE,
    SOCKET_RECEIVE_BUFFER_BYTES,
    SOCKET_SEND_BUFFER_BYTES,
    BadProperties,
    Config,
    InvalidConfig,
    parse_properties,
)
from ottla.config.listeners import Endpoint, Protocol, listeners
from ottla.io.clock import SystemClock
from ottla.io.disk import LocalDisk
from ottla.io.network import ListenFailed, TcpNetwork
from ottla.storage.log_directory import DirectoryInUse, WrongDirectory
from ottla.wire.errors import Refused

_BACKLOG = 1024
_FAREWELL_S = 10
SLOW_KERNEL = (
    "the reference kernel runs, in Python: records take many times longer than with the native one. Install Rust "
    "(cargo) and then Ottla again, or unset OTTLA_KERNEL if it is set"
)
_DEFAULTS = {"listeners": "PLAINTEXT://127.0.0.1:9092", "log.dirs": "data"}


class ServeOptions(NamedTuple):
    file: str | None
    data_dir: str | None
    listener: str | None
    settings: list[str]
    insecure: bool


def serve(wanted: ServeOptions) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    config = _config(wanted)
    for warning in config.warnings():
        print(f"ottla: {warning}", file=sys.stderr)
    _check_exposure(config, insecure=wanted.insecure)
    if kernel.IMPLEMENTATION != "native":
        print(f"ottla: {SLOW_KERNEL}", file=sys.stderr)
    _raise_file_limit()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_run(config))
    except (DirectoryInUse, WrongDirectory, ListenFailed) as error:
        raise UserError(str(error)) from error
    except Refused as refusal:
        raise UserError(refusal.text) from refusal
    except OSError as error:
        raise UserError(f"the node cannot start: {error}") from error


def _processors() -> int:
    """The number of processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


async def _run(config: Config) -> int:
    """Serve until told to stop, or until the node fails; returns the exit code."""
    network = TcpNetwork(
        # Connections are accepted between requests. If a burst of clients overflows the listen backlog, a client
        # retries only after a second: Kafka's default of 50 would be too few.
        backlog=config[SOCKET_LISTEN_BACKLOG_SIZE] if config.is_set(SOCKET_LISTEN_BACKLOG_SIZE) else _BACKLOG,
        # Kafka's default of 100 KiB would keep the system from adapting the buffers to the load.
        send_buffer_bytes=config[SOCKET_SEND_BUFFER_BYTES] if config.is_set(SOCKET_SEND_BUFFER_BYTES) else -1,
        receive_buffer_bytes=config[SOCKET_RECEIVE_BUFFER_BYTES] if config.is_set(SOCKET_RECEIVE_BUFFER_BYTES) else -1,
    )
    clock = SystemClock()
    node = Node(
        config,
        disk=LocalDisk(),
        clock=clock,
        random=random.SystemRandom(),
        network=network,
        tuning=MachineTuning(clock, processors=_processors()),
    )
    await node.start()
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    keep_collections_short(loop)
    where = ", ".join(f"{listener.host}:{listener.port}" for listener in node.listeners.values())
    print(f"ottla: node {node.node_id} of cluster {node.cluster_id} is ready on {where}", flush=True)
    ends = [asyncio.create_task(event.wait()) for event in (stopped, node.failed)]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for waiting in ends:
        waiting.cancel()
    if not node.failed.is_set():
        await node.stop()
        return 0
    print(f"ottla: node {node.node_id} ends: {node.failure}. Repair the disk, then start it again", file=sys.stderr)
    with suppress(TimeoutError):
        async with asyncio.timeout(_FAREWELL_S):
            await node.stop()  # Close what still works cleanly.
    return FAILED


def _config(wanted: ServeOptions) -> Config:
    settings = dict(_DEFAULTS) if wanted.file is None else _read(wanted.file)
    if wanted.data_dir is not None:
        settings["log.dirs"] = wanted.data_dir
    if wanted.listener is not None:
        settings["listeners"] = f"PLAINTEXT://{wanted.listener}"
        settings.pop("advertised.listeners", None)
    for text in wanted.settings:
        name, sign, value = text.partition("=")
        if not sign:
            raise UserError(f"--set {text}: expected KEY=VALUE")
        settings[name.strip()] = value.strip()
    for name in ("log.dirs", "log.dir"):
        if name in settings:
            paths = (part.strip() for part in settings[name].split(","))
            settings[name] = ",".join(str(Path(path).absolute()) for path in paths if path)
    try:
        config = Config.of(broker=settings)
        listeners(config)
        return config
    except InvalidConfig as invalid:
        raise UserError("\n       ".join(["invalid settings:", *invalid.problems])) from invalid


def _read(path: str) -> dict[str, str]:
    try:
        return parse_properties(Path(path).read_text())
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (BadProperties, UnicodeDecodeError) as error:
        raise UserError(f"{path} is no properties file: {error}") from error


def _check_exposure(config: Config, *, insecure: bool) -> None:
    """Raises UserError if a plaintext listener can be reached from other machines and --insecure is not given."""
    wanted = listeners(config)
    open_to_all = [
        endpoint
        for endpoint in (*wanted.clients, *wanted.controllers)
        if endpoint.protocol is Protocol.PLAINTEXT and not _is_loopback(endpoint)
    ]
    if open_to_all and not insecure:
        raise UserError(
            f"{open_to_all[0]} can be reached from other machines, without TLS or authentication. Listen on 127.0.0.1, "
            f"or give --insecure"
        )


def _raise_file_limit() -> None:
    """Raise the limit of open files as far as the system allows: each partition has open files, each connection one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _is_loopback(endpoint: Endpoint) -> bool:
    try:
        return ipaddress.ip_address(endpoint.host).is_loopback
    except ValueError:
        return endpoint.host == "localhost"


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop
