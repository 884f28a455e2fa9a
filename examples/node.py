"""A node for as long as an example runs: `ottla serve` on a free port of the loopback, its data where it is told."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_OTTLA: Final = Path(sys.executable).with_name("ottla")
_READY: Final = re.compile(r"is ready on (\S+)")
_PATIENCE_S: Final = 60.0
_LOOK_S: Final = 0.02
_FEW_PARTITIONS: Final = ("offsets.topic.num.partitions=4", "transaction.state.log.num.partitions=4")
"""Of the internal topics: fifty of each, the default, are for clusters."""


class NodeFailed(Exception):
    """It did not start; the end of its log is in the text."""


@contextmanager
def running_node(home: Path) -> Iterator[str]:
    """Gives its address. Raises NodeFailed."""
    log_path = home / "node.log"
    command = [str(_OTTLA), "serve", "--data-dir", str(home / "data"), "--listener", "127.0.0.1:0"]
    for setting in _FEW_PARTITIONS:
        command += ["--set", setting]
    with log_path.open("wb") as log:
        # In a session of its own: Ctrl-C is for the example, which stops the node when it has no more use for it.
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=home, start_new_session=True
        )
    try:
        yield _address(process, log_path)
    finally:
        process.terminate()
        process.wait()


def _address(process: "subprocess.Popen[bytes]", log_path: Path) -> str:
    deadline = time.monotonic() + _PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline:
        if found := _READY.search(log_path.read_text(errors="replace")):
            return found[1]
        time.sleep(_LOOK_S)
    raise NodeFailed(f"the node did not start:\n{log_path.read_text(errors='replace')[-2000:]}")
