"""The rules for produced batches, from a topic's settings."""

from ottla.config import (
    CLEANUP_POLICY,
    COMPRESSION_GZIP_LEVEL,
    COMPRESSION_LZ4_LEVEL,
    COMPRESSION_TYPE,
    COMPRESSION_ZSTD_LEVEL,
    MAX_MESSAGE_BYTES,
    MESSAGE_TIMESTAMP_AFTER_MAX_MS,
    MESSAGE_TIMESTAMP_BEFORE_MAX_MS,
    MESSAGE_TIMESTAMP_TYPE,
    Config,
)
from ottla.kernel import AT_ONCE_MAX, Codec, ProduceRules, TimestampType

_CODECS = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_LEVELS = {
    Codec.GZIP: COMPRESSION_GZIP_LEVEL,
    Codec.LZ4: COMPRESSION_LZ4_LEVEL,
    Codec.ZSTD: COMPRESSION_ZSTD_LEVEL,
}
_TIMESTAMP_TYPES = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}


def produce_rules(config: Config) -> ProduceRules:
    codec = _CODECS[config[COMPRESSION_TYPE]]
    level = _LEVELS.get(codec) if codec is not None else None
    return ProduceRules(
        compacted="compact" in config[CLEANUP_POLICY],
        timestamp_type=_TIMESTAMP_TYPES[config[MESSAGE_TIMESTAMP_TYPE]],
        timestamp_before_max_ms=config[MESSAGE_TIMESTAMP_BEFORE_MAX_MS],
        timestamp_after_max_ms=config[MESSAGE_TIMESTAMP_AFTER_MAX_MS],
        codec=codec,
        level=config[level] if level is not None else None,
        max_message_bytes=config[MAX_MESSAGE_BYTES],
        at_once_max=AT_ONCE_MAX,
    )
