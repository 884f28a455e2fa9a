"""A topic's settings, in the words of the kernel that checks batches by them."""

import pytest
from core_log_samples import config

from ottla.core.log.rules import produce_rules
from ottla.kernel import Codec, TimestampType


def test_defaults_leave_the_producer_its_choices() -> None:
    rules = produce_rules(config())
    assert (rules.codec, rules.level, rules.compacted) == (None, None, False)
    assert rules.timestamp_type is TimestampType.CREATE_TIME


@pytest.mark.parametrize(
    ("name", "codec", "level"),
    [
        ("uncompressed", Codec.NONE, None),
        ("gzip", Codec.GZIP, 3),
        ("snappy", Codec.SNAPPY, None),
        ("lz4", Codec.LZ4, 12),
        ("zstd", Codec.ZSTD, -7),
    ],
)
def test_a_codec_comes_with_its_own_level(name: str, codec: Codec, level: int | None) -> None:
    settings = config(
        compression_type=name, compression_gzip_level=3, compression_lz4_level=12, compression_zstd_level=-7
    )
    assert (produce_rules(settings).codec, produce_rules(settings).level) == (codec, level)


def test_every_other_setting_arrives() -> None:
    rules = produce_rules(
        config(
            cleanup_policy="compact,delete",
            message_timestamp_type="LogAppendTime",
            message_timestamp_before_max_ms=5,
            message_timestamp_after_max_ms=6,
            max_message_bytes=77,
        )
    )
    assert rules.compacted
    assert rules.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (rules.timestamp_before_max_ms, rules.timestamp_after_max_ms, rules.max_message_bytes) == (5, 6, 77)
    assert rules.from_client
