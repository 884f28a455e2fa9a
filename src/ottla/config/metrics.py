"""Metrics, client telemetry and quotas."""

from ottla.config.inert import NO_METRICS, NO_PLUGINS, NO_QUOTAS, NO_TELEMETRY
from ottla.config.notation import (
    MINUTE,
    SECOND,
    Bytes,
    ClassName,
    Int,
    IntMs,
    ListOf,
    MiB,
    Ms,
    Scope,
    Seconds,
    String,
    optional,
    setting,
)

METRICS_NUM_SAMPLES = setting(
    "metrics.num.samples", Int, default=2, at_least=1, inert=NO_METRICS, doc="How many samples a rate is made of."
)
METRICS_SAMPLE_WINDOW_MS = setting(
    "metrics.sample.window.ms", Ms, default=30 * SECOND, at_least=1, inert=NO_METRICS, doc="How long a sample is taken."
)
METRICS_RECORDING_LEVEL = setting(
    "metrics.recording.level",
    String,
    default="INFO",
    inert=NO_METRICS,
    doc="Which metrics are recorded: INFO, DEBUG or TRACE.",
)
METRIC_REPORTERS = setting(
    "metric.reporters",
    ListOf,
    default=("org.apache.kafka.common.metrics.JmxReporter",),
    live=True,
    inert=NO_PLUGINS,
    doc="Classes that metrics are handed to.",
)
KAFKA_METRICS_REPORTERS = setting(
    "kafka.metrics.reporters",
    ListOf,
    default=(),
    inert=NO_PLUGINS,
    doc="Classes that metrics of the older kind are handed to.",
)
KAFKA_METRICS_POLLING_INTERVAL_SECS = setting(
    "kafka.metrics.polling.interval.secs",
    Seconds,
    default=10,
    at_least=1,
    inert=NO_PLUGINS,
    doc="How often kafka.metrics.reporters are called.",
)
TELEMETRY_MAX_BYTES = setting(
    "telemetry.max.bytes",
    Bytes,
    default=1 * MiB,
    at_least=1,
    inert=NO_TELEMETRY,
    doc="The most telemetry that a client may send at a time (KIP-714).",
)

# Quotas
QUOTA_WINDOW_NUM = setting(
    "quota.window.num",
    Int,
    default=11,
    at_least=1,
    inert=NO_QUOTAS,
    doc="How many samples the rate of a client is made of.",
)
QUOTA_WINDOW_SIZE_SECONDS = setting(
    "quota.window.size.seconds",
    Seconds,
    default=1,
    at_least=1,
    inert=NO_QUOTAS,
    doc="How long a sample of a client's rate is taken.",
)
REPLICATION_QUOTA_WINDOW_NUM = setting(
    "replication.quota.window.num",
    Int,
    default=11,
    at_least=1,
    inert=NO_QUOTAS,
    doc="How many samples the rate of replication is made of.",
)
REPLICATION_QUOTA_WINDOW_SIZE_SECONDS = setting(
    "replication.quota.window.size.seconds",
    Seconds,
    default=1,
    at_least=1,
    inert=NO_QUOTAS,
    doc="How long a sample of replication's rate is taken.",
)
ALTER_LOG_DIRS_REPLICATION_QUOTA_WINDOW_NUM = setting(
    "alter.log.dirs.replication.quota.window.num",
    Int,
    default=11,
    at_least=1,
    inert=NO_QUOTAS,
    doc="How many samples the rate of moves between directories is made of.",
)
ALTER_LOG_DIRS_REPLICATION_QUOTA_WINDOW_SIZE_SECONDS = setting(
    "alter.log.dirs.replication.quota.window.size.seconds",
    Seconds,
    default=1,
    at_least=1,
    inert=NO_QUOTAS,
    doc="How long a sample of moves between directories is taken.",
)
CONTROLLER_QUOTA_WINDOW_NUM = setting(
    "controller.quota.window.num",
    Int,
    default=11,
    at_least=1,
    inert=NO_QUOTAS,
    doc="How many samples the rate of changes to topics is made of.",
)
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS = setting(
    "controller.quota.window.size.seconds",
    Seconds,
    default=1,
    at_least=1,
    inert=NO_QUOTAS,
    doc="How long a sample of changes to topics is taken.",
)
CLIENT_QUOTA_CALLBACK_CLASS = setting(
    "client.quota.callback.class",
    optional(ClassName),
    default=None,
    inert=NO_PLUGINS,
    doc="A class that computes quotas.",
)

# Subscriptions to clients' metrics
METRICS = setting(
    "metrics",
    ListOf,
    default=(),
    scope=Scope.CLIENT_METRICS,
    inert=NO_TELEMETRY,
    doc="The metrics a client is asked for, by the beginnings of their names; * for all.",
)
INTERVAL_MS = setting(
    "interval.ms",
    IntMs,
    default=5 * MINUTE,
    scope=Scope.CLIENT_METRICS,
    inert=NO_TELEMETRY,
    doc="How often a client is asked to send them.",
)
MATCH = setting(
    "match",
    ListOf,
    default=(),
    scope=Scope.CLIENT_METRICS,
    inert=NO_TELEMETRY,
    doc="Which clients are asked: NAME=PATTERN, separated by commas, where NAME is client_instance_id, client_id, "
    "client_software_name, client_software_version, client_source_address or client_source_port.",
)
