"""Before a log is opened: finish or undo the file operations that an interrupted node left in its directory.

Rule 1: `.deleted` and `.cleaned` files are removed: the first were out of use, the second not yet in use.
Rule 2: a `.swap` segment is complete, unless a `.cleaned` file with the same or a lower offset exists: then not all its
        files were renamed, the originals are still there, and it is removed too.
Rule 3: a complete `.swap` segment replaces every segment whose base offset it covers, and then gets its final name.
        Each step can be interrupted and repeated.
"""

from ottla.core.log import files
from ottla.core.log.files import SegmentFile, file_name, parse_file
from ottla.io.ports import Disk
from ottla.observe.trace import trace
from ottla.storage.atomic import TEMPORARY
from ottla.storage.batches import headers


def tidy(disk: Disk, path: str) -> dict[str, int]:
    """Finish or undo; returns the remaining files and their sizes."""
    listing = disk.scan(path)
    found = {name: parsed for name in listing if (parsed := parse_file(name)) is not None}
    incomplete = min((file.base_offset for file in found.values() if file.suffix == files.CLEANED), default=None)
    removed = [name for name, file in found.items() if _is_leftover(file, incomplete)]
    removed += [name for name in listing if name.endswith((TEMPORARY, files.DELETED)) and name not in found]
    swaps = {name: file for name, file in found.items() if file.suffix == files.SWAP and name not in removed}
    if not removed and not swaps:
        return listing
    for name in removed:
        disk.remove(f"{path}/{name}")
    if swaps:
        _finish_swap(disk, path, found, swaps)
    disk.sync_directory(path)
    trace("log.tidied", path=path, removed=removed, swapped=sorted(swaps))
    return disk.scan(path)


def _is_leftover(file: SegmentFile, incomplete: int | None) -> bool:
    if file.suffix == files.SWAP:
        return incomplete is not None and file.base_offset >= incomplete
    return file.suffix in (files.DELETED, files.CLEANED)


def _finish_swap(disk: Disk, path: str, found: dict[str, SegmentFile], swaps: dict[str, SegmentFile]) -> None:
    for name, swap in swaps.items():
        if swap.kind != files.LOG:
            continue
        end_offset = _next_offset(disk, f"{path}/{name}", swap.base_offset)
        for replaced, file in found.items():
            in_use = file.suffix == "" and file.kind in files.SEGMENT_KINDS
            if in_use and swap.base_offset <= file.base_offset < end_offset:
                disk.remove(f"{path}/{replaced}")
    # The removal of the originals must be durable before the rename: the `.swap` name is what says that they are
    # replaced.
    disk.sync_directory(path)
    for name, swap in swaps.items():
        disk.rename(f"{path}/{name}", f"{path}/{file_name(swap.base_offset, swap.kind)}")


def _next_offset(disk: Disk, path: str, base_offset: int) -> int:
    file = disk.open(path, writable=False)
    try:
        next_offset = base_offset + 1
        for _, header in headers(file, 0, file.size()):
            next_offset = header.next_offset
        return next_offset
    finally:
        file.close()
