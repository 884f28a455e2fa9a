"""Small files that are there whole or not at all, whenever the power goes."""

from ottla.io.ports import Disk

TEMPORARY = ".tmp"


def write_whole(disk: Disk, path: str, data: bytes) -> None:
    """Replace the file: write beside it, sync, rename, sync the directory."""
    temporary = path + TEMPORARY
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.write(0, [data])
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_directory(parent(path))


def read_whole(disk: Disk, path: str) -> bytes | None:
    """The contents, or None where there is no such file."""
    if not disk.exists(path):
        return None
    file = disk.open(path, writable=False)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"
