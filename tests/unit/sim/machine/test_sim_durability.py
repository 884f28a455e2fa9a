"""What a power loss may leave: what was synced, always; what was not, every legal part of it and nothing else."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.disk import SimDisk, SimFile
from ottla.sim.machine.durability import SECTOR
from ottla.sim.machine.faults import EIO, Fault

TRIES = 200


def make_disk() -> SimDisk:
    disk = SimDisk(SimClock(), Random(0))
    disk.make_directory("/d")
    disk.sync_directory("/")
    return disk


def durable_file(disk: SimDisk, path: str, contents: bytes) -> SimFile:
    file = disk.open(path, create=True)
    file.write(0, [contents])
    file.sync()
    disk.sync_directory(path.rpartition("/")[0])
    return file


def outcomes(disk: SimDisk, path: str) -> set[bytes | None]:
    return {disk.copy().after_power_loss(Random(seed)).contents().get(path) for seed in range(TRIES)}


def found_names(disk: SimDisk) -> set[tuple[str, ...]]:
    return {
        tuple(path for path in disk.copy().after_power_loss(Random(seed)).contents() if path != "/d")
        for seed in range(TRIES)
    }


def test_an_unsynced_append_may_be_lost_kept_short_or_zeros():
    disk = make_disk()
    file = durable_file(disk, "/d/f", b"old")
    file.write(3, [b"new"])
    assert outcomes(disk, "/d/f") >= {b"old", b"oldn", b"oldne", b"oldnew", b"old\0\0\0"}
    assert all(found is not None and found.startswith(b"old") for found in outcomes(disk, "/d/f"))


def test_unsynced_writes_may_be_reordered():
    disk = make_disk()
    file = durable_file(disk, "/d/f", bytes(2 * SECTOR))
    file.write(0, [b"1" * SECTOR])
    file.write(SECTOR, [b"2" * SECTOR])
    assert bytes(SECTOR) + b"2" * SECTOR in outcomes(disk, "/d/f")


def test_an_unsynced_truncation_may_be_undone():
    disk = make_disk()
    file = durable_file(disk, "/d/f", b"abcdef")
    file.truncate(2)
    assert outcomes(disk, "/d/f") >= {b"ab", b"abcdef"}


def test_a_sync_makes_all_of_it_durable():
    disk = make_disk()
    file = durable_file(disk, "/d/f", b"abcdef")
    file.truncate(2)
    file.write(5, [b"xyz"])
    file.sync()
    assert outcomes(disk, "/d/f") == {b"ab\0\0\0xyz"}


def test_a_synced_file_vanishes_when_its_name_was_not_synced():
    disk = make_disk()
    file = disk.open("/d/f", create=True)
    file.write(0, [b"abc"])
    file.sync()
    assert outcomes(disk, "/d/f") == {None, b"abc"}
    disk.sync_directory("/d")
    assert outcomes(disk, "/d/f") == {b"abc"}


def test_a_directory_vanishes_with_all_in_it_when_its_own_name_was_not_synced():
    disk = make_disk()
    disk.make_directory("/d/e")
    durable_file(disk, "/d/e/f", b"abc")
    assert outcomes(disk, "/d/e/f") == {None, b"abc"}


def test_parents_made_on_the_way_are_durable_but_the_last_directory_is_not():
    disk = make_disk()
    disk.make_directory("/d/a/b/c")
    assert found_names(disk) == {("/d/a", "/d/a/b"), ("/d/a", "/d/a/b", "/d/a/b/c")}


def test_a_rename_is_found_whole_or_not_at_all():
    disk = make_disk()
    durable_file(disk, "/d/a", b"new")
    durable_file(disk, "/d/b", b"old")
    disk.rename("/d/a", "/d/b")
    found = set()
    for seed in range(TRIES):
        contents = disk.copy().after_power_loss(Random(seed)).contents()
        found.add((contents.get("/d/a"), contents.get("/d/b")))
    assert found == {(b"new", b"old"), (None, b"new")}


def test_a_rename_makes_no_contents_durable():
    """The classic: rename over a file, lose power, find it empty."""
    disk = make_disk()
    durable_file(disk, "/d/b", b"old")
    disk.open("/d/a", create=True).write(0, [b"new"])
    disk.rename("/d/a", "/d/b")
    disk.sync_directory("/d")
    assert outcomes(disk, "/d/b") >= {b"", b"new"}
    assert b"old" not in outcomes(disk, "/d/b")


def test_names_in_two_directories_are_lost_independently():
    disk = make_disk()
    disk.make_directory("/d/x")
    disk.make_directory("/d/y")
    disk.sync_directory("/d")
    disk.open("/d/x/1", create=True)
    disk.open("/d/y/2", create=True)
    assert found_names(disk) == {
        ("/d/x", "/d/y"),
        ("/d/x", "/d/x/1", "/d/y"),
        ("/d/x", "/d/y", "/d/y/2"),
        ("/d/x", "/d/x/1", "/d/y", "/d/y/2"),
    }


def test_a_durable_file_is_never_lost_between_two_names():
    """A new file under the old name implies that the old one had moved away."""
    disk = make_disk()
    durable_file(disk, "/d/a", b"precious")
    disk.rename("/d/a", "/d/b")
    disk.open("/d/a", create=True)
    for seed in range(TRIES):
        assert b"precious" in disk.copy().after_power_loss(Random(seed)).contents().values()


def test_a_directory_removed_implies_that_it_had_been_emptied():
    disk = make_disk()
    disk.make_directory("/d/x")
    disk.sync_directory("/d")
    durable_file(disk, "/d/x/f", b"precious")
    disk.rename("/d/x/f", "/d/f")
    disk.remove_directory("/d/x")
    for seed in range(TRIES):
        assert b"precious" in disk.copy().after_power_loss(Random(seed)).contents().values()


def test_what_a_failed_sync_dropped_is_stored_by_no_later_sync():
    """Readers see it until the power goes: that is the trap."""
    disk = make_disk()
    file = durable_file(disk, "/d/f", b"old")
    lost = 0
    for seed in range(40):
        twin = disk.copy()
        twin.random = Random(seed)
        twin.faults.append(Fault(EIO, operations=("sync",), nth=1))
        file = twin.open("/d/f")
        file.write(3, [b"new"])
        try:
            file.sync()
        except OSError:
            file.sync()
        assert file.read(0, 6) == b"oldnew"
        lost += outcomes(twin, "/d/f") != {b"oldnew"}
    assert lost > 0


def test_the_next_process_reads_what_a_failed_sync_really_stored():
    found = set()
    for seed in range(40):
        disk = make_disk()
        durable_file(disk, "/d/f", b"old")
        disk.random = Random(seed)
        disk.faults.append(Fault(EIO, operations=("sync",), nth=1))
        file = disk.open("/d/f")
        file.write(3, [b"new"])
        with pytest.raises(OSError):
            file.sync()
        found.add(disk.after_kill().contents()["/d/f"])
    assert found >= {b"old", b"oldnew"}


operations = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 3 * SECTOR), st.binary(min_size=1, max_size=2 * SECTOR)),
        st.tuples(st.just("truncate"), st.integers(0, 3 * SECTOR)),
        st.tuples(st.just("sync")),
    ),
    max_size=12,
)


@settings(max_examples=100)
@given(operations, st.integers(0, 1 << 32))
def test_bytes_not_touched_since_the_sync_survive_and_every_byte_found_has_been_there(script, seed):
    """Nothing but old contents, new contents and zeros is ever found, and never a length the file did not reach."""
    disk = make_disk()
    file = durable_file(disk, "/d/f", b"")
    history: list[bytes] = [b""]
    first_touched = 0
    for operation, *arguments in script:
        if operation == "sync":
            file.sync()
            history = [history[-1]]
            first_touched = len(history[0])
            continue
        getattr(file, operation)(*([arguments[0], arguments[1:]] if operation == "write" else arguments))
        history.append(file.read(0, 1 << 20))
        first_touched = min(first_touched, arguments[0])
    found = disk.copy().after_power_loss(Random(seed)).contents()["/d/f"]
    assert found is not None
    assert found[:first_touched] == history[0][:first_touched]
    assert min(map(len, history)) <= len(found) <= max(map(len, history))
    for position, byte in enumerate(found):
        assert byte in {version[position] for version in history if position < len(version)} | {0}


@settings(max_examples=50)
@given(operations, st.integers(0, 1 << 32))
def test_a_power_loss_is_decided_by_its_seed_alone(script, seed):
    disk = make_disk()
    file = disk.open("/d/f", create=True)
    for operation, *arguments in script:
        getattr(file, operation)(*([arguments[0], arguments[1:]] if operation == "write" else arguments))
    first, second = (disk.copy().after_power_loss(Random(seed)) for _ in range(2))
    assert first.contents() == second.contents()
    again = first.after_power_loss(Random(seed + 1))
    assert again.contents() == first.contents(), "what was found after a power loss is durable"
