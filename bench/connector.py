"""Spark's own Kafka connector, if the registry has it.

The connector of a Spark version needs a second artifact of the same version (for delegation tokens, which are not used
here); the registry lacks it. So the newest available one is used instead.
"""

import subprocess
import tempfile
from pathlib import Path
from typing import Final

from peers.jars import CACHE, exclusive, missing_programs

SPARK_VERSION: Final = "4.1.3"
ARTIFACTS: Final = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
_PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"


class NoConnector(Exception):
    """It is not available; the text says why."""


def connector_jars() -> list[Path]:
    """Fetched once. Raises NoConnector."""
    if missing := missing_programs():
        raise NoConnector(f"{' and '.join(missing)} not found")
    jars = CACHE / f"spark-connector-{SPARK_VERSION}"
    with exclusive(CACHE / "lock"):
        if not jars.is_dir():
            with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
                made = Path(scratch) / "jars"
                for artifact in ARTIFACTS:
                    _fetch(artifact, made)
                made.rename(jars)
    return sorted(jars.glob("*.jar"))


def _fetch(artifact: str, target: Path) -> None:
    """Without what it depends on: Spark has the rest."""
    command = ["mvn", "-q", "-B", _PLUGIN, f"-Dartifact={artifact}", f"-DoutputDirectory={target}"]
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=elsewhere)
    if done.returncode != 0:
        raise NoConnector(f"the registry does not give {artifact}")
