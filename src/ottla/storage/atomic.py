"""Atomic replacement of small files, and the test for errors that are not the disk's fault."""

import errno

from ottla.io.ports import Disk

TEMPORARY = ".tmp"


def is_out_of_files(error: OSError) -> bool:
    """Whether the process ran out of file descriptors. The disk is healthy then, and no file was changed."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def write_whole(disk: Disk, path: str, data: bytes) -> None:
    """Replace the file: write beside it, sync, rename, sync the directory."""
    temporary = path + TEMPORARY
    write_unsynced(disk, temporary, data, then_sync=True)
    disk.rename(temporary, path)
    disk.sync_directory(parent(path))


def write_unsynced(disk: Disk, path: str, data: bytes, *, then_sync: bool = False) -> None:
    """Write a file in place. A crash may leave it torn, so its reader must be able to detect that."""
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.write(0, [data])
        if then_sync:
            file.sync()
    finally:
        file.close()


def read_whole(disk: Disk, path: str) -> bytes | None:
    """The contents of the file, or None if it does not exist."""
    if not disk.exists(path):
        return None
    file = disk.open(path, writable=False)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"
