"""Deadlines against a plain dictionary, and the place of keys in internal topics as Java has it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.runtime.deadlines import Deadlines
from ottla.core.runtime.shard import partition_of

KEYS = st.sampled_from("abcd")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.integers(0, 50)),
        st.tuples(st.just("cancel"), KEYS, st.just(0)),
        st.tuples(st.just("shift"), st.just(""), st.integers(-20, 20)),
        st.tuples(st.just("due"), st.just(""), st.integers(0, 20)),
    ),
    max_size=40,
)


@given(STEPS)
def test_every_key_is_due_once_at_its_last_deadline(steps: list[tuple[str, str, int]]) -> None:
    deadlines: Deadlines[str] = Deadlines()
    model: dict[str, int] = {}
    now_ms = 0
    for step, key, number in steps:
        if step == "set":
            deadlines.set(key, now_ms + number)
            model[key] = now_ms + number
        elif step == "cancel":
            deadlines.cancel(key)
            model.pop(key, None)
        elif step == "shift":
            deadlines.shift(number)
            model = {key: at_ms + number for key, at_ms in model.items()}
        else:
            now_ms += number
            due = {key for key, at_ms in model.items() if at_ms <= now_ms}
            assert sorted(deadlines.due(now_ms)) == sorted(due)
            model = {key: at_ms for key, at_ms in model.items() if key not in due}
        assert len(deadlines) == len(model)
        earliest = min(model.values(), default=None)
        asked = deadlines.next()
        assert (asked is None) == (earliest is None)
        assert earliest is None or (asked is not None and asked <= earliest)


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("my-group", 1_906_497_762),
        ("polygenelubricants", 0),  # Java's hash is the smallest integer, which has no absolute value.
        ("\N{GRINNING FACE}", 1_772_899),
    ],
)
def test_a_key_belongs_where_java_puts_it(key: str, hashed: int) -> None:
    """A group whose place differs from Kafka's is lost when the directory changes hands."""
    assert partition_of(key, 2**31) == hashed
    assert partition_of(key, 50) == hashed % 50
