"""How a reader of topics is told what to do, where it begins, how fast it goes and what it says of losses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.core.names import TopicPartition
from ottla.observe.trace import recording
from ottla.pipelines.source.allowance import Allowance
from ottla.pipelines.source.losses import DataLost, report
from ottla.pipelines.source.ranges import LogBounds, Loss, LossKind
from ottla.pipelines.source.read_options import BadOption, TopicReadOptions, from_options, to_options
from ottla.pipelines.source.starts import Beginning, NoSuchPartition, TruncatedTopic, begin
from ottla.pipelines.spec.model import DataLoss, Isolation, StartPosition
from ottla.pipelines.spec.record_columns import SOURCE_COLUMNS

A, B, C = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("payments", 0)
NAMES = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)
NUMBERS = st.integers(1, 2**40)
TIMES = st.integers(0, 2**45).map(lambda time_ms: StartPosition("", time_ms))
OFFSETS = st.dictionaries(st.tuples(NAMES, st.integers(0, 99)), st.integers(0, 2**40), min_size=1, max_size=5)
STARTS = st.one_of(
    st.sampled_from([StartPosition("earliest"), StartPosition("latest")]),
    TIMES,
    OFFSETS.map(
        lambda found: StartPosition("", None, tuple((topic, n, at) for (topic, n), at in sorted(found.items())))
    ),
)
TOPICS = st.one_of(
    st.tuples(st.lists(NAMES, min_size=1, max_size=3, unique=True).map(tuple), st.just("")),
    st.tuples(st.just(()), st.sampled_from(["orders-.*", "a|b", "(?i)x{1,3}"])),
)
READINGS = st.builds(
    lambda topics, **given: TopicReadOptions(topics=topics[0], pattern=topics[1], **given),
    TOPICS,
    bootstrap=st.just("127.0.0.1:9092"),
    source=NAMES,
    start=STARTS,
    until=st.one_of(st.none(), st.just(StartPosition("latest")), TIMES),
    isolation=st.sampled_from(Isolation),
    records_per_batch_max=NUMBERS,
    records_per_second_max=st.one_of(st.none(), NUMBERS),
    partitions_min=st.one_of(st.none(), NUMBERS),
    on_data_loss=st.sampled_from(DataLoss),
    columns=st.sets(st.sampled_from(SOURCE_COLUMNS), min_size=1).map(
        lambda names: tuple(n for n in SOURCE_COLUMNS if n in names)
    ),
)


@given(READINGS)
def test_options_say_all_there_is_to_a_reading(reading: TopicReadOptions) -> None:
    assert from_options(to_options(reading)) == reading


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"topics": "a"}, "option `bootstrap` is missing"),
        ({"bootstrap": "b"}, "give either `topics`"),
        ({"bootstrap": "b", "topics": "a", "pattern": "b"}, "give either `topics`"),
        (
            {"bootstrap": "b", "topics": "a", "startingOffsets": "earliest"},
            "'startingOffsets' is not known; the options are boot",
        ),
        ({"bootstrap": "b", "topics": "a", "start": "yesterday"}, "`start` is 'yesterday'; choose earliest or latest"),
        ({"bootstrap": "b", "topics": "a", "start": '{"a": 3}'}, "`start` is "),
        ({"bootstrap": "b", "topics": "a", "until": "earliest"}, "`until` is 'earliest'; choose latest or milli"),
        ({"bootstrap": "b", "topics": "a", "isolation": "dirty"}, "'dirty'; choose read_committed or read_uncommitted"),
        ({"bootstrap": "b", "topics": "a", "records_per_batch_max": "0"}, "'0'; choose a whole number from 1"),
        ({"bootstrap": "b", "topics": "a", "partitions_min": "many"}, "'many'; choose a whole number from 1"),
        ({"bootstrap": "b", "topics": "a", "columns": "_key, _valu"}, "`columns` has '_valu'; there are _key, _value"),
        ({"bootstrap": "b", "topics": "a", "on_data_loss": "hide"}, "'hide'; choose fail or warn"),
    ],
)
def test_option_that_makes_no_sense_is_refused_with_what_is_allowed(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(BadOption, match=complaint):
        from_options(options)


@given(st.integers(1, 5_000), st.integers(1, 5_000), st.lists(st.integers(0, 3_000), max_size=30))
def test_no_more_is_read_than_the_rate_and_one_second_of_it(per_batch: int, per_second: int, pauses: list[int]) -> None:
    allowance = Allowance(per_batch, per_second)
    now = spent = 0
    for pause_ms in [0, *pauses]:
        now += pause_ms
        limit = allowance.limit(now)
        assert limit <= min(per_batch, per_second)
        allowance.spend(limit)
        spent += limit
        assert spent <= per_second * (now + 1_000) // 1_000
    now += allowance.wait_ms()
    assert allowance.limit(now) >= 1


def test_batch_without_a_rate_is_as_large_as_it_may_be() -> None:
    allowance = Allowance(700, None)
    allowance.spend(allowance.limit(0))
    assert (allowance.limit(0), allowance.wait_ms()) == (700, 0)


LOGS = {A: LogBounds(0, 10), B: LogBounds(5, 20), C: LogBounds(0, 0)}


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (
            StartPosition("earliest"),
            Beginning(
                {A: 0, B: 5, C: 0}, [], [TruncatedTopic("orders", 5, False), TruncatedTopic("payments", 0, True)]
            ),
        ),
        (StartPosition("latest"), Beginning({A: 10, B: 20, C: 0}, [], [])),
        (StartPosition("", 1_700), Beginning({A: 3, B: 7, C: 0}, [], [])),
        (StartPosition("", None, (("orders", 0, 4),)), Beginning({A: 4, B: 5, C: 0}, [], [])),
        (
            StartPosition("", None, (("orders", 0, 11), ("orders", 1, 2))),
            Beginning({A: 10, B: 5, C: 0}, [Loss(LossKind.CUT, A, 10, 11), Loss(LossKind.REMOVED, B, 2, 5)], []),
        ),
    ],
)
def test_pipeline_begins_where_it_is_told(start: StartPosition, expected: Beginning) -> None:
    assert begin(start, LOGS, {A: 3, B: 7, C: 0}) == expected


def test_topic_that_retention_emptied_is_told_to_be_empty() -> None:
    """Records with old times vanish within the hour; the pipeline would wait for ever without saying why."""
    assert begin(StartPosition(), {A: LogBounds(9, 9), B: LogBounds(7, 7)}, {}).late == [
        TruncatedTopic("orders", 16, True)
    ]


def test_time_of_which_the_first_records_may_be_gone_is_told() -> None:
    """A replay would take what is left for all there was."""
    logs = {A: LogBounds(9, 20), B: LogBounds(0, 20)}
    assert begin(StartPosition("", 1_700), logs, {A: 9, B: 0}).late == [TruncatedTopic("orders", 9, False)]
    assert begin(StartPosition("", 1_700), logs, {A: 10, B: 0}).late == []


def test_start_in_a_partition_that_does_not_exist_is_refused() -> None:
    with pytest.raises(NoSuchPartition, match="topic orders, partition 7, which does not exist"):
        begin(StartPosition("", None, (("orders", 7, 4),)), LOGS, {})


LOSSES = [Loss(LossKind.REMOVED, A, 0, 4), Loss(LossKind.CUT, B, 8, 10)]


def test_loss_stops_the_pipeline_and_says_what_can_be_done() -> None:
    with pytest.raises(
        DataLost, match=r'0 to 3 were .*\(and 1 more\).* on_data_loss = "warn" of \[source.shop\].*retention.ms'
    ):
        report(LOSSES, DataLoss.FAIL, "shop")
    report([], DataLoss.FAIL, "shop")


def test_loss_that_does_not_stop_the_pipeline_is_warned_of_one_by_one() -> None:
    with recording() as events:
        report(LOSSES, DataLoss.WARN, "shop")
    assert [(event.name, event.warning, event.fields["partition"]) for event in events] == [
        ("pipeline.data_lost", True, "orders-0"),
        ("pipeline.data_lost", True, "orders-1"),
    ]
