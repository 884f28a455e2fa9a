"""Groups of Kafka Streams applications (KIP-1071)."""

from ottla.config.inert import NO_STREAMS
from ottla.config.notation import INT_MAX, MINUTE, SECOND, Int, IntMs, Scope, setting

# Time
GROUP_STREAMS_MIN_SESSION_TIMEOUT_MS = setting(
    "group.streams.min.session.timeout.ms",
    IntMs,
    default=45 * SECOND,
    at_least=1,
    inert=NO_STREAMS,
    doc="The shortest session that a group may set.",
)
GROUP_STREAMS_MAX_SESSION_TIMEOUT_MS = setting(
    "group.streams.max.session.timeout.ms",
    IntMs,
    default=1 * MINUTE,
    at_least=1,
    inert=NO_STREAMS,
    doc="The longest session that a group may set.",
)
GROUP_STREAMS_SESSION_TIMEOUT_MS = setting(
    "group.streams.session.timeout.ms",
    IntMs,
    default=45 * SECOND,
    at_least=1,
    not_below=GROUP_STREAMS_MIN_SESSION_TIMEOUT_MS,
    not_above=(GROUP_STREAMS_MAX_SESSION_TIMEOUT_MS,),
    inert=NO_STREAMS,
    doc="A member that was silent for this long loses what it holds to others.",
)
GROUP_STREAMS_MIN_HEARTBEAT_INTERVAL_MS = setting(
    "group.streams.min.heartbeat.interval.ms",
    IntMs,
    default=5 * SECOND,
    at_least=1,
    inert=NO_STREAMS,
    doc="The shortest interval that a group may set.",
)
GROUP_STREAMS_MAX_HEARTBEAT_INTERVAL_MS = setting(
    "group.streams.max.heartbeat.interval.ms",
    IntMs,
    default=15 * SECOND,
    at_least=1,
    inert=NO_STREAMS,
    doc="The longest interval that a group may set.",
)
GROUP_STREAMS_HEARTBEAT_INTERVAL_MS = setting(
    "group.streams.heartbeat.interval.ms",
    IntMs,
    default=5 * SECOND,
    at_least=1,
    not_below=GROUP_STREAMS_MIN_HEARTBEAT_INTERVAL_MS,
    not_above=(GROUP_STREAMS_MAX_HEARTBEAT_INTERVAL_MS,),
    below=GROUP_STREAMS_SESSION_TIMEOUT_MS,
    inert=NO_STREAMS,
    doc="How often members are told to send heartbeats; changes reach them with the answers.",
)
GROUP_STREAMS_MIN_ASSIGNMENT_INTERVAL_MS = setting(
    "group.streams.min.assignment.interval.ms",
    IntMs,
    default=0,
    at_least=0,
    inert=NO_STREAMS,
    doc="The shortest pause that a group may set.",
)
GROUP_STREAMS_MAX_ASSIGNMENT_INTERVAL_MS = setting(
    "group.streams.max.assignment.interval.ms",
    IntMs,
    default=15 * SECOND,
    at_least=0,
    inert=NO_STREAMS,
    doc="The longest pause that a group may set.",
)
GROUP_STREAMS_ASSIGNMENT_INTERVAL_MS = setting(
    "group.streams.assignment.interval.ms",
    IntMs,
    default=1 * SECOND,
    at_least=0,
    not_below=GROUP_STREAMS_MIN_ASSIGNMENT_INTERVAL_MS,
    not_above=(GROUP_STREAMS_MAX_ASSIGNMENT_INTERVAL_MS,),
    live=True,
    inert=NO_STREAMS,
    doc="The shortest pause between two assignments of a group.",
)

# Members
GROUP_STREAMS_MAX_SIZE = setting(
    "group.streams.max.size",
    Int,
    default=INT_MAX,
    at_least=1,
    inert=NO_STREAMS,
    doc="How many members a group may have.",
)
GROUP_STREAMS_MAX_STANDBY_REPLICAS = setting(
    "group.streams.max.standby.replicas",
    Int,
    default=2,
    at_least=0,
    inert=NO_STREAMS,
    doc="The most copies that a group may set.",
)
GROUP_STREAMS_NUM_STANDBY_REPLICAS = setting(
    "group.streams.num.standby.replicas",
    Int,
    default=0,
    at_least=0,
    not_above=(GROUP_STREAMS_MAX_STANDBY_REPLICAS,),
    inert=NO_STREAMS,
    doc="How many copies of a task's state stand ready beside the one at work.",
)
GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS = setting(
    "group.streams.initial.rebalance.delay.ms",
    IntMs,
    default=3 * SECOND,
    at_least=0,
    inert=NO_STREAMS,
    doc="A new group waits this long for more members before it first shares out tasks.",
)

# What a group may set for itself
STREAMS_SESSION_TIMEOUT_MS = setting(
    "streams.session.timeout.ms",
    IntMs,
    default=45 * SECOND,
    at_least=1,
    not_below=GROUP_STREAMS_MIN_SESSION_TIMEOUT_MS,
    not_above=(GROUP_STREAMS_MAX_SESSION_TIMEOUT_MS,),
    scope=Scope.GROUP,
    falls_back_to=((GROUP_STREAMS_SESSION_TIMEOUT_MS, 1),),
    inert=NO_STREAMS,
    doc="group.streams.session.timeout.ms for one group.",
)
STREAMS_HEARTBEAT_INTERVAL_MS = setting(
    "streams.heartbeat.interval.ms",
    IntMs,
    default=5 * SECOND,
    at_least=1,
    not_below=GROUP_STREAMS_MIN_HEARTBEAT_INTERVAL_MS,
    not_above=(GROUP_STREAMS_MAX_HEARTBEAT_INTERVAL_MS,),
    below=STREAMS_SESSION_TIMEOUT_MS,
    scope=Scope.GROUP,
    falls_back_to=((GROUP_STREAMS_HEARTBEAT_INTERVAL_MS, 1),),
    inert=NO_STREAMS,
    doc="group.streams.heartbeat.interval.ms for one group.",
)
STREAMS_ASSIGNMENT_INTERVAL_MS = setting(
    "streams.assignment.interval.ms",
    IntMs,
    default=1 * SECOND,
    at_least=0,
    not_below=GROUP_STREAMS_MIN_ASSIGNMENT_INTERVAL_MS,
    not_above=(GROUP_STREAMS_MAX_ASSIGNMENT_INTERVAL_MS,),
    scope=Scope.GROUP,
    falls_back_to=((GROUP_STREAMS_ASSIGNMENT_INTERVAL_MS, 1),),
    inert=NO_STREAMS,
    doc="group.streams.assignment.interval.ms for one group.",
)
STREAMS_NUM_STANDBY_REPLICAS = setting(
    "streams.num.standby.replicas",
    Int,
    default=0,
    at_least=0,
    not_above=(GROUP_STREAMS_MAX_STANDBY_REPLICAS,),
    scope=Scope.GROUP,
    falls_back_to=((GROUP_STREAMS_NUM_STANDBY_REPLICAS, 1),),
    inert=NO_STREAMS,
    doc="group.streams.num.standby.replicas for one group.",
)
STREAMS_INITIAL_REBALANCE_DELAY_MS = setting(
    "streams.initial.rebalance.delay.ms",
    IntMs,
    default=3 * SECOND,
    at_least=0,
    scope=Scope.GROUP,
    falls_back_to=((GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS, 1),),
    inert=NO_STREAMS,
    doc="group.streams.initial.rebalance.delay.ms for one group.",
)
