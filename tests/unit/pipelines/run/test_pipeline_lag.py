"""How far behind a pipeline is, in records and in time."""

from ottla.client.core.names import TopicPartition
from ottla.pipelines.run.lag import Lag, LagTracker

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
NONE = {P0: 0, P1: 0}


def test_records_over_all_partitions() -> None:
    watch = LagTracker()
    assert watch.look(1_000, NONE, {P0: 10, P1: 5}, {P0: 7}).records == 8


def test_what_retention_took_is_not_behind() -> None:
    assert LagTracker().look(0, {P0: 90}, {P0: 100}, {}).records == 10


def test_time_since_the_topics_ended_where_the_pipeline_is() -> None:
    watch = LagTracker()
    watch.look(1_000, NONE, {P0: 10, P1: 10}, {})
    watch.look(2_000, NONE, {P0: 20, P1: 10}, {})
    assert watch.look(9_000, NONE, {P0: 30, P1: 30}, {P0: 20, P1: 10}) == Lag(30, 7_000)
    assert watch.look(9_500, NONE, {P0: 30, P1: 30}, {P0: 30, P1: 29}) == Lag(1, 7_500)


def test_caught_up_is_no_time_behind() -> None:
    watch = LagTracker()
    watch.look(1_000, NONE, {P0: 10}, {})
    assert watch.look(5_000, NONE, {P0: 10}, {P0: 10}) == Lag(0, 0)


def test_further_behind_than_the_first_look_is_behind_since_then() -> None:
    watch = LagTracker()
    watch.look(1_000, NONE, {P0: 10}, {P0: 1})
    assert watch.look(4_000, NONE, {P0: 10}, {P0: 2}) == Lag(8, 3_000)
