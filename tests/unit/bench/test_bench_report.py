"""How measurements are written down."""

from pathlib import Path

from bench.report import Section, Table, keep_files, page, verdict, with_new


def test_table_is_markdown() -> None:
    table = Table("Title", ["what", "µs"])
    table.add("a", 1.234)
    table.add("b", 1234.5)
    assert table.text().splitlines() == [
        "**Title**",
        "",
        "| what |    µs |",
        "|:-----|------:|",
        "| a    |  1.23 |",
        "| b    | 1,234 |",
    ]


def test_missed_aim_is_called_missed() -> None:
    assert verdict(3.0, 2.0, " µs") == "3.00 µs, aim 2.00 µs: MISSED"
    assert verdict(2.0, 2.0) == "2.00, aim 2.00: met"


def test_one_section_is_replaced_and_the_others_stay() -> None:
    old = page([Section("One", "first"), Section("Two", "second")], [])
    new = with_new(old, [Section("One", "measured anew"), Section("Three", "third")], [])
    assert [line for line in new.splitlines() if line.startswith("## ")] == ["## One", "## Two", "## Three"]
    assert "measured anew" in new
    assert "first" not in new
    assert "second" in new


def test_files_of_a_section_are_kept_beside_the_page(tmp_path: Path) -> None:
    keep_files([Section("One", "", files={"profiles/a.txt": "first"}), Section("Two", "")], tmp_path / "RESULTS.md")
    assert (tmp_path / "profiles" / "a.txt").read_text() == "first"
