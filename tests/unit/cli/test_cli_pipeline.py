"""`ottla pipeline plan`: what people and programs see of a pipeline, right or wrong, without Spark."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli import FINDINGS, USAGE, main
from ottla.pipelines.spec.reference import reference_tables

PAGE = Path(__file__).parents[3] / "docs" / "pipelines.md"


def blocks(language: str) -> list[str]:
    return [part.split("```")[0] for part in PAGE.read_text().split(f"```{language}\n")[1:]]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The pipeline of the documentation."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    path = tmp_path / "shop.toml"
    path.write_text(blocks("toml")[0])
    return path


def shown(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def test_the_plan_is_the_one_that_the_documentation_shows(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "plan", shop.name]) == 0
    assert "\n".join(shown(capsys.readouterr().out)) in PAGE.read_text()


def test_mistakes_are_told_as_the_documentation_shows(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shop.read_text().replace('"json"', '"jsn"').replace("FROM orders", "FROM order")
    Path("wrong.toml").write_text(text.replace("2 minutes", "2 fortnights"))
    assert main(["pipeline", "plan", "wrong.toml"]) == FINDINGS
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err in PAGE.read_text()


def test_a_python_file_gives_the_same_plan(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("shop.py").write_text(blocks("python")[0])
    outputs = []
    for file in (shop.name, "shop.py"):
        assert main(["pipeline", "plan", file, "--json"]) == 0
        outputs.append(json.loads(capsys.readouterr().out))
    assert outputs[0] == outputs[1]
    assert outputs[0]["group"] == "pipeline.orders-per-minute"
    assert outputs[0]["nodes"] == [
        {"kind": "source", "name": "orders", "from": []},
        {"kind": "step", "name": "windows", "from": ["orders"]},
        {"kind": "sink", "name": "per_minute", "from": ["windows"]},
    ]


def test_programs_get_every_mistake_in_its_parts(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop.write_text(shop.read_text().replace('"json"', '"jsn"'))
    assert main(["pipeline", "plan", shop.name, "--json"]) == FINDINGS
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert problem.pop("message").startswith("expected json, avro")
    assert problem == {
        "file": "shop.toml",
        "line": 5,
        "key": "source.orders.parse",
        "value": "jsn",
        "allowed": "json, avro, protobuf, text or bytes",
    }


@pytest.mark.parametrize(
    ("source", "code", "told"),
    [
        ("x = 1", USAGE, "bad.py declares no pipeline"),
        ("from ottla.pipelines import Declaration as D\na, b = D('a'), D('b')", USAGE, "declares 2 pipelines"),
        ("x = 1\nx.y", FINDINGS, "bad.py:2: the file cannot be run: AttributeError"),
        ("x = 1\nx = = 2", FINDINGS, "bad.py:2: the file cannot be run: SyntaxError"),
        ("from ottla.pipelines import Declaration as D\n\na = D('a')", FINDINGS, "bad.py:3: sink: there is no sink"),
    ],
)
def test_a_python_file_without_one_pipeline_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    source: str,
    code: int,
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.py").write_text(source)
    assert main(["pipeline", "plan", "bad.py"]) == code
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("file", ["none.toml", "none.py"])
def test_a_file_that_is_not_there_is_told(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "plan", file]) == USAGE
    assert f"ottla: {file}: No such file" in capsys.readouterr().err


def test_every_kind_of_part_is_shown_in_words(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop.write_text(
        'name = "a"\n[source.f]\nfiles = "in/*.csv"\nparse = "csv"\nmax_bytes_per_batch = "1 MiB"\n'
        '[source.p]\npattern = "o.*"\nparse = "text"\nstart = { "o:0" = 5 }\nmax_records_per_second = 9\n'
        '[source.t]\ntopic = "t"\nparse = "json"\ntable = true\n'
        '[[step]]\ninput = "f"\ndedup = "id"\nwatermark = { column = "at", delay = "1h" }\n'
        '[[step]]\npython = "json:loads"\nschema = "id INT"\n[[step]]\nstateful = "json:loads"\nkeys = "id"\n'
        'schema = "id INT"\n[[step]]\nmodel = "m"\n[[step]]\ntrain = "json:loads"\nschema = "id INT, at TIMESTAMP"\n'
        '[[step]]\nwatermark = { column = "at", delay = "5s" }\n'
        '[[step]]\nsql = "SELECT * FROM step_6, p, t"\n'
        '[sink.a]\nparquet = "q"\npartition_by = "day"\n[sink.b]\ndelta = "d"\nupsert = "id"\n'
        '[sink.c]\npostgres = "postgresql://h/d"\ntable = "t"\nupsert = "id"\n[sink.d]\nconsole = true\n'
    )
    assert main(["pipeline", "plan", shop.name]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for part in (
        *("files in/*.csv, csv (columns from 1,000 records), at most 1,000 files a batch, at most 1 MiB a batch",),
        *("topics like o.*, text, from o:0=5", "at most 9 records a second", "topic t, json", "as a table"),
        *("dedup by id, watermark f.at 1h", "python json:loads on arrow batches", "stateful json:loads by id"),
        *("model m", "train json:loads", "watermark step_5.at 5.0s", "step_6, p, t SELECT * FROM step_6, p, t"),
        *("parquet q, partitioned by day", "delta d, upsert by id", "postgres postgresql://h/d table t, upsert by id"),
        *("console, at most 20 rows a batch", "the first record that fails stops the pipeline"),
    ):
        assert part in out


def test_a_mistake_is_told_without_spark_and_without_what_only_tables_need(shop: Path) -> None:
    """It is what makes the answer come at once."""
    shop.write_text(shop.read_text().replace('"json"', '"jsn"'))
    code = "import sys, ottla.cli as c\nc.main(sys.argv[1:])\nprint({'pyspark', 'rich', 'asyncio'} & set(sys.modules))"
    command = [sys.executable, "-c", code, "pipeline", "plan", shop.name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
    assert "1 mistake\n" in done.stderr


def test_the_documentation_has_every_key() -> None:
    """`python -m ottla.pipelines` prints what it must end with."""
    assert PAGE.read_text().endswith(reference_tables())
