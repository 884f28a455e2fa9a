"""A disk of little room, in memory: mounted in a namespace of its own, for which nobody needs to be root."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

_PIECE: Final = b"\0" * 4096


class NoSmallDisk(Exception):
    """The machine does not let one be mounted; the text says why."""


class SmallDisk(NamedTuple):
    """Mounted for the processes of a namespace, which lasts as long as the one that holds it."""

    mount_point: Path
    holder_pid: int

    @property
    def from_outside(self) -> Path:
        return Path(f"/proc/{self.holder_pid}/root{self.mount_point}")

    def inside(self, *program: str, directory: Path) -> list[str]:
        """How to start a program that has the disk at its mount point."""
        entering = ["nsenter", "--user", "--mount", "--preserve-credentials", f"--target={self.holder_pid}"]
        return [*entering, f"--wd={directory}", *program]

    def fill(self) -> Path:
        """The file that takes all the room there is; deleting it gives the room back."""
        ballast = self.from_outside / "ballast"
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(_PIECE)
            except OSError:
                return ballast


@contextmanager
def small_disk(mount_point: Path, size_bytes: int) -> Iterator[SmallDisk]:
    """Raises NoSmallDisk."""
    mount_point.mkdir(parents=True)
    script = 'mount -t tmpfs -o "size=$1" tmpfs "$2" && echo mounted && exec cat'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", str(size_bytes)]
    try:
        holder = subprocess.Popen(
            [*command, str(mount_point)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    except FileNotFoundError as error:
        raise NoSmallDisk(str(error)) from None
    assert holder.stdin is not None, "a pipe was asked for"
    assert holder.stdout is not None, "a pipe was asked for"
    try:
        said = holder.stdout.readline().strip()
        if said != "mounted":
            raise NoSmallDisk(f"no disk can be mounted in a namespace: {said}")
        yield SmallDisk(mount_point, holder.pid)
    finally:
        holder.stdin.close()
        holder.wait()
        holder.stdout.close()
