"""The rules of the house that a program can check: pure packages, import directions, sizes, nothing unfinished."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "ottla"

PURE = {"wire", "kernel", "core", "config"}
IMPURE_MODULES = {
    *("asyncio", "concurrent", "multiprocessing", "selectors", "signal", "subprocess", "threading"),
    *("fcntl", "glob", "mmap", "os", "pathlib", "shutil", "socket", "ssl", "tempfile", "urllib"),
    *("datetime", "logging", "random", "secrets", "time"),
}
IMPURE_CALLS = {"open", "input", "exec", "eval", "__import__"}
READS_ENVIRONMENT = {"kernel/choice.py"}  # Which kernel runs is settled before anything else does.
GENERATES_CODE = {"wire/source.py", "wire/schema.py"}  # They compile source made from declarations, never from input.

MAY_IMPORT = {
    "wire": set(),
    "kernel": {"wire"},
    "config": {"wire"},
    "core": {"wire", "kernel", "config"},
    "io": set(),
    "observe": set(),
    "storage": {"wire", "kernel", "config", "core", "io", "observe"},
    "broker": {"wire", "kernel", "config", "core", "io", "observe", "rpc", "storage"},
    "rpc": {"wire", "io", "observe"},
    "client": {"wire", "kernel", "config", "io", "observe", "rpc"},
    "pipelines": {"wire", "kernel", "config", "observe", "rpc", "client"},
    "cli": {"wire", "kernel", "config", "core", "io", "observe", "storage", "broker", "rpc", "client", "pipelines"},
    "sim": {"wire", "kernel", "config", "core", "io", "observe", "storage", "broker", "rpc", "client"},
}
ROOMS = {
    "broker": {
        "network": {"handlers"},  # Only by name, in dispatch's table.
        "partitions": set(),
        "controller": {"network"},  # Long requests give way: Budget.
        "coordinators": {"network", "partitions", "controller"},
        "handlers": {"network", "partitions", "controller", "coordinators"},
        "fastpath": {"network", "partitions", "handlers"},
    },
    "pipelines": {
        "spec": set(),
        "authoring": {"spec"},
        "source": {"spec"},
        "run": {"spec", "authoring"},
        "sink": {"spec", "run"},  # The kinds of sinks are named by spec/sinks, and so found without an import.
        "spark": {"spec", "authoring", "source", "sink", "run"},
    },
    "sim": {"machine": set(), "log": {"machine"}, "node": {"machine"}},
    "core": {
        "runtime": set(),
        "log": set(),
        "metadata": {"runtime", "log"},
        "groups": {"runtime", "metadata"},
        "transactions": {"runtime"},
        "security": set(),
    },
}
"""Sub-packages, and which of their neighbours each may import. What stands beside them is open to all of them."""
PLUGGED_IN_BY = {"fastpath": "broker/node.py"}
"""Rooms that one module alone may import, so that they can be taken out."""

IMPORTS_SPARK = "pipelines/spark/"  # Everything else works, and answers at once, without it.
CALLS_SPARK = "pipelines/sink/"  # Imports it inside functions and for types: see docs/adr/0011.
IMPORTS_ARROW = ("pipelines/", "kernel/reference/")  # Never at the start of a node or of a command.
HEAVY = {"pyspark", "py4j", "pyarrow", "pandas", "numpy"}

MODULE_LINES = 600
FUNCTION_LINES = 75
DECLARATIONS = ("wire/api/", "wire/records/")  # Tables grow with Kafka's messages, not with complexity.

TEXT_SUFFIXES = {
    ".py",
    ".md",
    ".toml",
    ".txt",
    ".cfg",
    ".ini",
    ".yml",
    ".yaml",
    ".xml",
    ".java",
    ".properties",
    ".rs",
    "",
}
BUILT = {
    ".git",
    ".venv",
    ".peers",
    ".mypy_cache",
    ".ruff_cache",
    ".hypothesis",
    "__pycache__",
    "build",
    "dist",
    "target",
}
# Written in two halves, so that this file does not find itself.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
MACHINE_PATH = re.compile(r"(?<![\w.-])/(?:ro" r"ot|ho" r"me|wo" r"rk|Use" r"rs)/\w")
INDEX_OPTION = re.compile(r"--(?:extra-)?index" r"-url|index" r"-url\s*=|<mirr" r"ors?>")
ADDRESS = re.compile(r"\b(?:https?|git|ssh)://([\w.-]+)")
KNOWN_HOSTS = {
    *("127.0.0.1", "localhost", "www.apache.org", "maven.apache.org", "kafka.apache.org", "issues.apache.org"),
    *("cwiki.apache.org", "www.w3.org", "json.schemastore.org", "github.com", "keepachangelog.com", "semver.org"),
}


def python_problems(path: str, source: str) -> Iterator[str]:
    """What is wrong with one module; `path` is relative to the package, as in `core/log/plan.py`."""
    tree = ast.parse(source, path)
    package = path.split("/")[0] if "/" in path else ""
    if source.strip() and not ast.get_docstring(tree):
        yield f"{path}: no docstring says what the module is for"
    lines = source.count("\n")
    if lines > MODULE_LINES and not path.startswith(DECLARATIONS):
        yield f"{path}: {lines} lines; past {MODULE_LINES} it wants to be two modules"
    for node in ast.walk(tree):
        yield from _import_problems(path, package, node, loaded=node in tree.body)
        yield from _door_problems(path, node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield f"{path}:{node.lineno}: {node.name} has {length} lines; past {FUNCTION_LINES} it wants to be two"
        if package in PURE and path not in GENERATES_CODE and isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else ""
            if called in IMPURE_CALLS:
                yield f"{path}:{node.lineno}: {package} is pure and calls {called}()"


def _import_problems(path: str, package: str, node: ast.AST, *, loaded: bool) -> Iterator[str]:
    """`loaded`: the import happens when the module is imported."""
    for module in _imported(node):
        top, _, rest = module.partition(".")
        if package in PURE and top in IMPURE_MODULES and path not in READS_ENVIRONMENT:
            yield f"{path}:{node.lineno}: {package} is pure and imports {module}"  # type: ignore[attr-defined]
        if module.startswith("ottla.kernel.") and package not in ("", "kernel"):
            yield f"{path}:{node.lineno}: {module} is inside the kernel; import it from ottla.kernel"  # type: ignore[attr-defined]
        calls_spark = path.startswith(CALLS_SPARK) and not loaded
        if top in HEAVY - {"pyarrow"} and not path.startswith(IMPORTS_SPARK) and not calls_spark:
            yield f"{path}:{node.lineno}: only {IMPORTS_SPARK} imports {top}"  # type: ignore[attr-defined]
        if top == "pyarrow" and not path.startswith(IMPORTS_ARROW):
            yield f"{path}:{node.lineno}: only pipelines import pyarrow"  # type: ignore[attr-defined]
        other = rest.split(".")[0]
        if top == "ottla" and other in MAY_IMPORT and other not in MAY_IMPORT.get(package, {other}) | {package}:
            yield f"{path}:{node.lineno}: {package} may not import {other}"  # type: ignore[attr-defined]


def _door_problems(path: str, node: ast.AST) -> Iterator[str]:
    """Imports between the rooms of a package."""
    package, *inside = path.split("/")
    rooms = ROOMS.get(package, {})
    room = inside[0] if len(inside) > 1 else ""
    for module in _imported(node):
        if not module.startswith(f"ottla.{package}."):
            continue
        other = module.split(".")[2]
        line = node.lineno  # type: ignore[attr-defined]
        if other in PLUGGED_IN_BY and room != other and path != PLUGGED_IN_BY[other]:
            yield f"{path}:{line}: only {PLUGGED_IN_BY[other]} imports {package}/{other}"
        elif room in rooms and other in rooms and other not in rooms[room] | {room}:
            yield f"{path}:{line}: {package}/{room} may not import {package}/{other}"


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        if node.level:
            return ["(relative)"]
        module = node.module or ""
        return [f"{module}.{alias.name}" for alias in node.names] if module == "ottla" else [module]
    return []


def text_problems(path: str, text: str) -> Iterator[str]:
    """What no file of the repository may contain."""
    for number, line in enumerate(text.splitlines(), 1):
        if UNFINISHED.search(line):
            yield f"{path}:{number}: unfinished: {line.strip()}"
        if MACHINE_PATH.search(line):
            yield f"{path}:{number}: a path of one machine: {line.strip()}"
        if INDEX_OPTION.search(line):
            yield f"{path}:{number}: where packages come from is the machine's business: {line.strip()}"
        for host in ADDRESS.findall(line):
            if host not in KNOWN_HOSTS and not host.endswith((".example", ".example.com", ".test", ".invalid")):
                yield f"{path}:{number}: an address that is not on the list of known ones: {host}"


def _modules() -> Iterator[tuple[str, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), path.read_text()


def _texts() -> Iterator[tuple[str, str]]:
    for path in sorted(ROOT.rglob("*")):
        relative = path.relative_to(ROOT)
        hidden = BUILT.intersection(relative.parts) or any(part.endswith(".egg-info") for part in relative.parts)
        if not hidden and path.is_file() and path.suffix in TEXT_SUFFIXES:
            yield relative.as_posix(), path.read_text(errors="replace")


def test_every_module_is_tidy() -> None:
    assert [problem for path, source in _modules() for problem in python_problems(path, source)] == []


def test_every_package_has_its_import_rule() -> None:
    packages = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert packages <= set(MAY_IMPORT)


def test_every_room_has_its_doors() -> None:
    for package, rooms in ROOMS.items():
        found = {path.parent.name for path in (PACKAGE / package).glob("*/__init__.py")}
        assert found == set(rooms), package


def test_node_and_commands_start_without_spark_and_arrow() -> None:
    """They take a second and a hundred megabytes, which `ottla serve` has no use for."""
    starting = "import ottla, ottla.broker.node, ottla.cli.serve, ottla.cli.pipeline, ottla.cli, sys"
    seen = subprocess.run(
        [sys.executable, "-c", f"{starting}; print(*sorted(sys.modules))"], capture_output=True, text=True, check=True
    )
    assert HEAVY.intersection(seen.stdout.split()) == set()


def test_every_file_is_finished_and_belongs_to_no_machine() -> None:
    assert [problem for path, text in _texts() for problem in text_problems(path, text)] == []


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        ("core/log/x.py", '"""d"""\nimport time', "core is pure and imports time"),
        ("core/log/x.py", '"""d"""\nfrom os.path import join', "core is pure and imports os.path"),
        ("wire/x.py", '"""d"""\ndef f():\n    import asyncio', "wire is pure and imports asyncio"),
        ("kernel/x.py", '"""d"""\nopen("f")', "kernel is pure and calls open()"),
        ("wire/x.py", '"""d"""\nfrom ottla.kernel import scan', "wire may not import kernel"),
        ("wire/x.py", '"""d"""\nfrom ottla import kernel', "wire may not import kernel"),
        ("io/x.py", '"""d"""\nimport ottla.config', "io may not import config"),
        ("cli/x.py", '"""d"""\nfrom ottla.sim.machine.disk import SimDisk', "cli may not import sim"),
        ("storage/x.py", '"""d"""\nfrom ottla.cli import main', "storage may not import cli"),
        ("broker/x.py", '"""d"""\nfrom ottla.pipelines import spec', "broker may not import pipelines"),
        (
            "broker/network/x.py",
            '"""d"""\nfrom ottla.broker.partitions.waiters import Waiter',
            "broker/network may not import broker/partitions",
        ),
        (
            "broker/handlers/x.py",
            '"""d"""\nfrom ottla.broker.fastpath.plug import Lanes',
            "only broker/node.py imports broker/fastpath",
        ),
        (
            "pipelines/x.py",
            '"""d"""\ndef f():\n    from pyspark.sql import DataFrame',
            "only pipelines/spark/ imports pyspark",
        ),
        ("pipelines/x.py", '"""d"""\nimport pandas as pd', "only pipelines/spark/ imports pandas"),
        ("pipelines/sink/x.py", '"""d"""\nimport pyspark', "only pipelines/spark/ imports pyspark"),
        ("client/x.py", '"""d"""\nimport pyarrow', "only pipelines import pyarrow"),
        ("io/x.py", "import os", "no docstring"),
        ("io/x.py", '"""d"""\n' + "x = 1\n" * MODULE_LINES, "wants to be two modules"),
        ("io/x.py", '"""d"""\ndef f():\n' + "    x = 1\n" * FUNCTION_LINES, "f has"),
    ],
)
def test_untidy_module_is_found(path: str, source: str, expected: str) -> None:
    assert any(expected in problem for problem in python_problems(path, source))


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("core/log/x.py", '"""d"""\nfrom ottla.kernel import scan\nfrom ottla.config import Config\nimport struct'),
        ("wire/api/x.py", '"""d"""\n' + "x = 1\n" * MODULE_LINES),
        ("sim/x.py", '"""d"""\nimport os\nfrom ottla.storage import partition'),
        ("core/__init__.py", ""),
        ("cli/x.py", '"""d"""\nfrom ottla import __version__'),
        ("pipelines/spark/x.py", '"""d"""\nimport pandas\nfrom pyspark.sql import DataFrame'),
        ("pipelines/sink/x.py", '"""d"""\ndef f():\n    import pyspark'),
    ],
)
def test_tidy_module_passes(path: str, source: str) -> None:
    assert list(python_problems(path, source)) == []


@pytest.mark.parametrize(
    "text",
    [
        "# TO" + "DO: later",
        "see /wo" + "rk/main/x",
        "pip install --index" + "-url x",
        "https:" + "//registry.internal.example.org/simple",
        "http:" + "//10.1.2.3:8080/pypi",
    ],
)
def test_text_that_does_not_belong_is_found(text: str) -> None:
    assert list(text_problems("f", text)) != []


@pytest.mark.parametrize("text", ["https://www.apache.org/licenses/LICENSE-2.0", "log.dirs=/var/lib/ottla", "a/work/b"])
def test_text_that_belongs_passes(text: str) -> None:
    assert list(text_problems("f", text)) == []
