"""What a task leaves behind in a worker that Spark keeps."""

import gc
import importlib
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from zipimport import zipimporter

import pytest

from ottla.pipelines.run.python_workers import lighten


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "modules.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("ottla_zipped_first.py", "NAME = 'first'")
        made.writestr("ottla_zipped_second.py", "NAME = 'second'")
    monkeypatch.syspath_prepend(str(path))
    for name in ("ottla_zipped_first", "ottla_zipped_second"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return path


def _looked_into() -> list[str]:
    return [path for path, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter)]


def test_archives_are_not_looked_into_before_the_next_task(archive: Path) -> None:
    """Their indexes would be read again each time, also where nothing is imported any more."""
    importlib.import_module("ottla_zipped_first")
    assert str(archive) in _looked_into()
    lighten()
    assert not _looked_into()


def test_modules_are_still_found_in_archives(archive: Path) -> None:
    importlib.import_module("ottla_zipped_first")
    lighten()
    importlib.invalidate_caches()
    assert importlib.import_module("ottla_zipped_second").NAME == "second"
    assert str(archive) in _looked_into()


def test_what_was_imported_is_set_aside_once() -> None:
    """Garbage of later tasks must still be found."""
    lighten()
    set_aside = gc.get_freeze_count()
    assert set_aside
    later: list[list[int]] = [[] for _ in range(1000)]
    lighten()
    assert gc.get_freeze_count() < set_aside + len(later)
