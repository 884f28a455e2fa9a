"""A PostgreSQL for as long as somebody wants one: on a free port of the loopback, in a directory of its own."""

import getpass
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from pathlib import Path

PACKAGED = "/usr/lib/postgresql/*/bin"


class NoPostgres(Exception):
    """There is none on this machine; the text says what would bring one."""


class Postgres:
    def __init__(self, url: str) -> None:
        self.url = url


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Raises NoPostgres."""
    programs = _programs()
    home = Path(tempfile.mkdtemp(prefix="ottla-postgres-"))
    user = _user(home)
    port = _free_port()
    data = home / "data"
    try:
        _run([programs / "initdb", "-D", data, "-U", "shop", "--auth=trust", "--no-sync", "-E", "UTF8"], user)
        options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={home} -c fsync=off"
        _run([programs / "pg_ctl", "-D", data, "-w", "-l", home / "log", "-o", options, "start"], user)
        try:
            yield Postgres(f"postgresql://shop@127.0.0.1:{port}/postgres")
        finally:
            _run([programs / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop"], user)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _programs() -> Path:
    for directory in sorted(glob(PACKAGED), reverse=True):
        if os.access(os.path.join(directory, "initdb"), os.X_OK):
            return Path(directory)
    found = shutil.which("initdb")
    if found is None:
        raise NoPostgres("initdb not found: PostgreSQL cannot run here (apt install postgresql)")
    return Path(found).parent


def _user(home: Path) -> str | None:
    """PostgreSQL refuses to run as root: then as the user that its package made."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        os.chown(home, found.pw_uid, found.pw_gid)
        return name
    raise NoPostgres(f"{getpass.getuser()} may not run PostgreSQL, and there is no user postgres")


def _run(command: list[object], user: str | None) -> None:
    """What it says goes to a file: the server keeps that open, and a pipe would never end."""
    with tempfile.TemporaryFile("w+") as said:
        done = subprocess.run(
            list(map(str, command)),
            user=user,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,  # Ctrl-C is for whoever wants the server, and stops it himself.
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
            check=False,
        )
        if done.returncode != 0:
            said.seek(0)
            raise RuntimeError(f"{command[0]} failed: {said.read()}")


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
