"""Kafka's command-line tools by class name, all in one JVM (see Tools.java), and with them classes of our own."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct

from peers.class_archive import using
from peers.jvm import FAST_START, Output, ToolFailedError, archive_of

HERE = Path(__file__).parent
_SIZE = Struct(">i")


class JavaTools:
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self._to, self._from = process.stdin, process.stdout

    def run(self, main_class: str, *arguments: str, stdin: str = "") -> Output:
        """Run a tool to its end; what it printed. One that ends with an error raises, with all it said."""
        self._to.write(b"".join(_framed(part) for part in (str(len(arguments)), main_class, *arguments, stdin)))
        self._to.flush()
        status, stdout, stderr = self._read(), self._read(), self._read()
        if status != "0":
            said = (stdout + stderr)[-4000:]
            raise ToolFailedError(f"{main_class} {' '.join(arguments)[:1000]} ended with {status}:\n{said}")
        return Output(stdout, stderr)

    def kill(self) -> None:
        """End the JVM without a word, and with it every client that runs there."""
        self._process.kill()
        self._process.wait()

    def _read(self) -> str:
        size = self._from.read(_SIZE.size)
        if len(size) < _SIZE.size:
            raise ToolFailedError("the JVM of the tools has ended")
        return self._from.read(_SIZE.unpack(size)[0]).decode()


def _framed(text: str) -> bytes:
    data = text.encode()
    return _SIZE.pack(len(data)) + data


def compiled(jars: Path, source: Path, home: Path) -> Path:
    """The directory of the classes that a source file, written against the jars, comes to."""
    command = ["javac", "-cp", f"{jars}/*", "-d", str(home), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolFailedError(f"{source.name} does not compile:\n{done.stdout + done.stderr}")
    return home


@contextmanager
def java_tools(jars: Path, home: Path, *classes: Path) -> Iterator[JavaTools]:
    """The tools, until the block ends; `classes` are directories where more of them are found."""
    logging = f"-Dlog4j2.configurationFile={HERE / 'quiet.properties'}"
    flags = [*FAST_START, *using(archive_of(jars)), "-Xmx256m", logging]
    path = ":".join([f"{jars}/*", *map(str, classes)])
    command = ["java", *flags, "-cp", path, str(HERE / "Tools.java")]
    with (home / "tools.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=home)
        with process:
            try:
                yield JavaTools(process)
            finally:
                process.kill()
