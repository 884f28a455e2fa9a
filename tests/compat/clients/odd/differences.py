"""The differences that are known, each with its reason."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from odd.answers import Flat
from odd.generator import Case
from odd.peer import WAITS
from odd.values import Batch


class Known(NamedTuple):
    """Patterns, as of file names: of the request and the path in its answer, of Kafka's value and of Ottla's."""

    where: str
    kafka: str
    ottla: str
    reason: str
    when: Callable[[Case], bool] = lambda _: True


def _asks_for_all(case: Case) -> bool:
    return any(not one.configuration_keys for one in case.request.resources)


def _names_kraft_version(case: Case) -> bool:
    return any(one.feature == "kraft.version" for one in case.request.feature_updates)


def _repeats_in_transaction(case: Case) -> bool:
    request = case.request
    topics = [*request.v3_and_below_topics, *(topic for one in request.transactions for topic in one.topics)]
    named = [one.transactional_id for one in request.transactions]
    return len(set(named)) < len(named) or any(len(set(one.partitions)) < len(one.partitions) for one in topics)


def _repeats_partition(case: Case) -> bool:
    named = [
        (str(topic.name), str(topic.topic_id), one.index)
        for topic in case.request.topic_data
        for one in topic.partition_data
    ]
    return len(set(named)) < len(named)


def _has_unreadable_batch(case: Case) -> bool:
    """One whose length or magic no batch can have."""
    changed = [
        one.records.patch
        for topic in case.request.topic_data
        for one in topic.partition_data
        if isinstance(one.records, Batch)
    ]
    return any(name in ("length", "magic") for patch in changed for name, _ in patch)


STATIC_QUORUM = (
    "The tests run Kafka with voters in its file (kraft.version 0); Ottla formats a quorum that can change (version 1)."
)
COORDINATORS = "The records of coordinators tell times and producer ids. Other tests compare their form."
NOT_BUILT = "Ottla names the APIs and features that are built."

KNOWN: Sequence[Known] = (
    Known("DESCRIBE_CONFIGS v*.documentation", "*", "*", "What a setting is for, in each project's own words."),
    Known("*.configs[[]ottla.*", "<absent>", "*", "A setting that Kafka does not have."),
    Known("*.configs#", "33", "34", "A setting that Kafka does not have."),
    Known(
        "LIST_OFFSETS v* topics*",
        "*",
        "*",
        "Kafka fails at an isolation level that there is not. Ottla refuses it, for the partitions that are asked for.",
        lambda case: case.request.isolation_level not in (0, 1),
    ),
    Known(
        "DESCRIBE_CONFIGS v*.synonyms*",
        "*",
        "*",
        "Where a coarser setting gives the value (log.roll.jitter.hours), Kafka names none and Ottla names it.",
        _asks_for_all,
    ),
    Known("DESCRIBE_CONFIGS v* results[[]1 8]*", "*", "*", "Each server has its own loggers."),
    Known("DESCRIBE_QUORUM v* nodes[[]1].listeners*", "*", "*", STATIC_QUORUM),
    Known("DESCRIBE_QUORUM v*.replica_directory_id", "*", "*", STATIC_QUORUM),
    Known("UPDATE_FEATURES v*", "*", "*", STATIC_QUORUM, _names_kraft_version),
    Known("DESCRIBE_QUORUM v*.log_end_offset", "*", "*", "The offset of a log into which both write as they like."),
    Known("DESCRIBE_QUORUM v*.high_watermark", "*", "*", "The offset of a log into which both write as they like."),
    Known("DESCRIBE_QUORUM v*.leader_epoch", "*", "1", "Kafka's controller fails over when a request makes it fail."),
    Known("API_VERSIONS v* api_keys[[]*", "<answer>", "<absent>", NOT_BUILT),
    Known("API_VERSIONS v* *_features[[]s*.version]", "<answer>", "<absent>", NOT_BUILT),
    Known("API_VERSIONS v* *#", "*", "*", NOT_BUILT),
    Known("API_VERSIONS v* finalized_features[[]kraft.version]", "<absent>", "*", STATIC_QUORUM),
    Known(
        "API_VERSIONS v* finalized_features_epoch", "*", "*", "The offset of a log into which both write as they like."
    ),
    Known("*message", "None", "<text>", "Ottla says what is wrong where Kafka leaves the person to guess."),
    Known("*message", "''", "<text>", "Ottla says what is wrong where Kafka leaves the person to guess."),
    Known(
        "ADD_PARTITIONS_TO_TXN v*",
        "*",
        "*",
        "Of a partition or transaction that is named twice Kafka tells several times, and adds what it named last.",
        _repeats_in_transaction,
    ),
    Known("FETCH v* responses[[]__*", "*", "*", COORDINATORS),
    Known("DESCRIBE_LOG_DIRS v*.topics[[]__*", "*", "*", COORDINATORS),
    Known(
        "PRODUCE v*",
        "*",
        "*",
        "Of a partition that is named twice Kafka appends the last batch and drops the others without a word. "
        "Ottla refuses all of them.",
        _repeats_partition,
    ),
    Known(
        "PRODUCE v*",
        "*",
        "*",
        "Kafka reads the headers of all batches before it looks for partitions, and fails the whole request. "
        "Ottla refuses each for its own reason.",
        _has_unreadable_batch,
    ),
)


def reason_for(case: Case, path: str, kafka: str, ottla: str) -> str | None:
    where = f"{case.api.name} v{case.version} {path}"
    for known in KNOWN:
        if (
            fnmatchcase(where, known.where)
            and fnmatchcase(kafka, known.kafka)
            and fnmatchcase(ottla, known.ottla)
            and known.when(case)
        ):
            return known.reason
    return None


_UNFORESEEN = "Kafka failed in a way it did not foresee. Ottla says what is wrong with the request."
_NO_ANSWER = "Kafka failed in a way it did not foresee, and never answers. Ottla does."
REASONS_FOR_ALL = (_UNFORESEEN, _NO_ANSWER)


def reason_for_all(kafka: Flat, ottla: Flat) -> str | None:
    """Why the answers may differ in whatever they say."""
    if "UNKNOWN_SERVER_ERROR" in kafka.values() and _has_error(ottla):
        return _UNFORESEEN
    return _NO_ANSWER if kafka.get("") == WAITS else None


def _has_error(flat: Flat) -> bool:
    return any(value != "NONE" for path, value in flat.items() if path.endswith("error_code"))
