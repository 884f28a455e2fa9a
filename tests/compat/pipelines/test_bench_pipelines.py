"""The benchmark of pipelines runs. It is measured with by hand, so nothing else would notice that it broke."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[3]))

from bench import pipelines
from bench.connector import NoConnector
from bench.nodes import Node, Ottla
from bench.pipelines import CONNECTOR, REFERENCE, WAYS, job_of
from bench.sizes import TINY

RECORDS = 1000


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(Ottla({"log.retention.ms": -1}), tmp_path_factory.mktemp("bench"))
    pipelines.fill(node, RECORDS)
    yield node
    node.stop()


@pytest.mark.parametrize(
    ("kind", "way"), [found for found in WAYS if CONNECTOR not in found and REFERENCE not in found]
)
def test_every_way_brings_all_records_through(spark: SparkSession, filled: Node, kind: str, way: str) -> None:
    from bench.pipeline_load import measure

    result = measure(spark, job_of(filled, kind, way, RECORDS, 1, []))  # type: ignore[arg-type]
    assert result["rows"] == RECORDS
    assert min(result["cold_s"], result["steady_s"]) > 0


def test_part_says_what_it_found_and_what_it_could_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference job in a process of its own, without the connector."""

    def none() -> list[Path]:
        raise NoConnector("the registry is closed")

    monkeypatch.setattr(pipelines, "connector_jars", none)
    section = pipelines.run(replace(TINY, load=REFERENCE))
    (table,) = section.tables
    assert [row[:2] for row in table.rows] == [("Ottla, reference job", "pipeline")]
    assert "is not to be had, and nothing is compared with it: the registry is closed" in section.findings[0]
