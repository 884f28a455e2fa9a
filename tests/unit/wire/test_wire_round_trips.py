"""What is encoded decodes as the same message: every message, every version."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from wire_samples import MESSAGE_VERSIONS, MESSAGES, carried, filled, instances

from ottla.wire.codec import decode, encode, encode_parts
from ottla.wire.schema import message_of, structure_of


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_whatever_a_version_carries_comes_back(cls: type[Any]) -> None:
    @settings(max_examples=5, database=None, suppress_health_check=list(HealthCheck))
    @given(instances(cls))
    def check(message: Any) -> None:
        for version in message_of(cls).versions:
            sent = carried(message, version)
            assert decode(cls, version, encode(sent, version)) == sent

    check()


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_a_message_with_every_field_set_comes_back(cls: type[Any]) -> None:
    for version in message_of(cls).versions:
        message = filled(cls, version)
        data = encode(message, version)
        assert decode(cls, version, data) == message, version
        assert decode(cls, version, bytearray(data)) == message, version
        assert b"".join(encode_parts(message, version)) == data, version


def test_there_are_as_many_messages_as_kafka_has() -> None:
    """So that a module nobody imports cannot make the tests above test less."""
    assert len(MESSAGES) == 272
    assert len(MESSAGE_VERSIONS) == sum(len(message_of(cls).versions) for cls in MESSAGES) > 600


def test_the_samples_say_something() -> None:
    """Guards the guards: if `carried` or `filled` flattened everything, the round trips would prove nothing."""
    for cls, version in MESSAGE_VERSIONS:
        message, blank = filled(cls, version), structure_of(cls).blank()
        assert carried(message, version) == message
        fields = [f.name for f in structure_of(cls).fields if f.in_version(version)]
        assert all(getattr(message, name) != getattr(blank, name) for name in fields), (cls, version)
