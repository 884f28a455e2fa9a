"""The differences that are known, each with its reason."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from odd.generator import Case


class Known(NamedTuple):
    """Patterns, as of file names: of the request and the path in its answer, of Kafka's value and of Ottla's."""

    where: str
    kafka: str
    ottla: str
    reason: str


KNOWN: Sequence[Known] = (
    Known("API_VERSIONS v* api_keys*", "*", "*", "Ottla names the APIs that are built."),
    Known("API_VERSIONS v* supported_features*", "*", "*", "Ottla names the features that are built."),
    Known("API_VERSIONS v* finalized_features*", "*", "*", "Ottla names the features that are built."),
    Known("*message", "None", "<text>", "Ottla says what is wrong where Kafka leaves the person to guess."),
    Known("*message", "''", "<text>", "Ottla says what is wrong where Kafka leaves the person to guess."),
)


def reason_for(case: Case, path: str, kafka: str, ottla: str) -> str | None:
    where = f"{case.api.name} v{case.version} {path}"
    for known in KNOWN:
        if fnmatchcase(where, known.where) and fnmatchcase(kafka, known.kafka) and fnmatchcase(ottla, known.ottla):
            return known.reason
    return None
