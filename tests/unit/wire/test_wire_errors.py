"""The table of error codes; tests/compat compares it with Kafka's own."""

import pytest

from ottla.wire.errors import Error, Refused


def test_every_error_has_a_sentence_of_its_own() -> None:
    assert len({error.text for error in Error}) == len(Error) == 135
    assert all(error.text.endswith((".", ")")) and error.text[0].isalpha() for error in Error)


def test_an_error_is_its_code() -> None:
    assert Error(45) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert Error.NOT_LEADER_OR_FOLLOWER == 6
    assert Error.NOT_LEADER_OR_FOLLOWER.retriable
    assert not Error.FENCED_INSTANCE_ID.retriable
    with pytest.raises(ValueError, match="134"):
        Error(134)


def test_a_refusal_carries_code_and_text() -> None:
    refusal = Refused(Error.MESSAGE_TOO_LARGE, "t-0: a batch of 9 bytes, at most 8")
    assert (refusal.error, refusal.text) == (Error.MESSAGE_TOO_LARGE, "t-0: a batch of 9 bytes, at most 8")
    assert str(refusal) == "MESSAGE_TOO_LARGE: t-0: a batch of 9 bytes, at most 8"
    assert Refused(Error.NOT_CONTROLLER).text == Error.NOT_CONTROLLER.text


def test_a_refusal_that_quotes_something_long_fits_into_an_answer() -> None:
    """A string of an answer may have 32,767 bytes."""
    refusal = Refused(Error.INVALID_REQUEST, f"group {'🦦' * 32_767!r} is unknown")
    assert len(refusal.text.encode()) < 10_000
    assert refusal.text.startswith("group '🦦🦦")
    assert refusal.text.endswith("🦦🦦' is unknown")
    assert "[31286 characters]" in refusal.text
