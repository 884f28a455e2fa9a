"""Authentication: SASL mechanisms, Kerberos, OAuth."""

from ottla.config.inert import NO_KERBEROS, NO_OAUTH, NO_PLUGINS, NO_SASL
from ottla.config.notation import (
    MINUTE,
    SECOND,
    Bytes,
    ClassName,
    Double,
    IntMs,
    KiB,
    ListOf,
    Ms,
    Password,
    ShortSeconds,
    String,
    optional,
    setting,
)

SASL_ENABLED_MECHANISMS = setting(
    "sasl.enabled.mechanisms",
    ListOf,
    default=("GSSAPI",),
    per_broker=True,
    inert=NO_SASL,
    doc="How clients may log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI.",
)
SASL_MECHANISM_INTER_BROKER_PROTOCOL = setting(
    "sasl.mechanism.inter.broker.protocol",
    String,
    default="GSSAPI",
    per_broker=True,
    inert=NO_SASL,
    doc="How brokers log in at each other.",
)
SASL_MECHANISM_CONTROLLER_PROTOCOL = setting(
    "sasl.mechanism.controller.protocol",
    String,
    default="GSSAPI",
    inert=NO_SASL,
    doc="How brokers log in at controllers.",
)
SASL_JAAS_CONFIG = setting(
    "sasl.jaas.config",
    optional(Password),
    default=None,
    per_broker=True,
    inert=NO_SASL,
    doc="The login module and its options, in Java's notation; for one listener and mechanism as "
    "listener.name.NAME.MECHANISM.sasl.jaas.config.",
)
SASL_SERVER_MAX_RECEIVE_SIZE = setting(
    "sasl.server.max.receive.size", Bytes, default=512 * KiB, inert=NO_SASL, doc="The largest message of a login."
)
CONNECTIONS_MAX_REAUTH_MS = setting(
    "connections.max.reauth.ms",
    Ms,
    default=0,
    inert=NO_SASL,
    doc="Close a connection that did not log in again within this time. 0: once is enough.",
)
SASL_SERVER_CALLBACK_HANDLER_CLASS = setting(
    "sasl.server.callback.handler.class",
    optional(ClassName),
    default=None,
    inert=NO_PLUGINS,
    doc="A class that checks logins.",
)
SASL_CLIENT_CALLBACK_HANDLER_CLASS = setting(
    "sasl.client.callback.handler.class",
    optional(ClassName),
    default=None,
    inert=NO_PLUGINS,
    doc="A class that answers the questions of a login.",
)
SASL_LOGIN_CLASS = setting(
    "sasl.login.class", optional(ClassName), default=None, inert=NO_PLUGINS, doc="A class that logs in."
)
SASL_LOGIN_CALLBACK_HANDLER_CLASS = setting(
    "sasl.login.callback.handler.class",
    optional(ClassName),
    default=None,
    inert=NO_PLUGINS,
    doc="A class that answers the questions of sasl.login.class.",
)

# Kerberos
SASL_KERBEROS_SERVICE_NAME = setting(
    "sasl.kerberos.service.name",
    optional(String),
    default=None,
    per_broker=True,
    inert=NO_KERBEROS,
    doc="The name of Kafka's principal in Kerberos.",
)
SASL_KERBEROS_PRINCIPAL_TO_LOCAL_RULES = setting(
    "sasl.kerberos.principal.to.local.rules",
    ListOf,
    default=("DEFAULT",),
    per_broker=True,
    inert=NO_KERBEROS,
    doc="How a principal's name becomes a user's name: rules, the first that fits counts.",
)
SASL_KERBEROS_KINIT_CMD = setting(
    "sasl.kerberos.kinit.cmd",
    String,
    default="/usr/bin/kinit",
    per_broker=True,
    inert=NO_KERBEROS,
    doc="Where the program kinit is.",
)
SASL_KERBEROS_TICKET_RENEW_WINDOW_FACTOR = setting(
    "sasl.kerberos.ticket.renew.window.factor",
    Double,
    default=0.8,
    per_broker=True,
    inert=NO_KERBEROS,
    doc="Renew a ticket after this share of its life.",
)
SASL_KERBEROS_TICKET_RENEW_JITTER = setting(
    "sasl.kerberos.ticket.renew.jitter",
    Double,
    default=0.05,
    per_broker=True,
    inert=NO_KERBEROS,
    doc="How much chance there is in the time of renewing.",
)
SASL_KERBEROS_MIN_TIME_BEFORE_RELOGIN = setting(
    "sasl.kerberos.min.time.before.relogin",
    Ms,
    default=1 * MINUTE,
    per_broker=True,
    inert=NO_KERBEROS,
    doc="The shortest time between two renewals.",
)

# Renewing a login
SASL_LOGIN_REFRESH_WINDOW_FACTOR = setting(
    "sasl.login.refresh.window.factor",
    Double,
    default=0.8,
    per_broker=True,
    inert=NO_OAUTH,
    doc="Renew a token after this share of its life.",
)
SASL_LOGIN_REFRESH_WINDOW_JITTER = setting(
    "sasl.login.refresh.window.jitter",
    Double,
    default=0.05,
    per_broker=True,
    inert=NO_OAUTH,
    doc="How much chance there is in the time of renewing.",
)
SASL_LOGIN_REFRESH_MIN_PERIOD_SECONDS = setting(
    "sasl.login.refresh.min.period.seconds",
    ShortSeconds,
    default=60,
    per_broker=True,
    inert=NO_OAUTH,
    doc="The shortest time between two renewals.",
)
SASL_LOGIN_REFRESH_BUFFER_SECONDS = setting(
    "sasl.login.refresh.buffer.seconds",
    ShortSeconds,
    default=300,
    per_broker=True,
    inert=NO_OAUTH,
    doc="Renew at the latest this long before a token ends.",
)
SASL_LOGIN_CONNECT_TIMEOUT_MS = setting(
    "sasl.login.connect.timeout.ms",
    optional(IntMs),
    default=None,
    inert=NO_OAUTH,
    doc="How long connecting to the identity provider may take; where not set, as long as it takes.",
)
SASL_LOGIN_READ_TIMEOUT_MS = setting(
    "sasl.login.read.timeout.ms",
    optional(IntMs),
    default=None,
    inert=NO_OAUTH,
    doc="How long the identity provider's answer may take; where not set, as long as it takes.",
)
SASL_LOGIN_RETRY_BACKOFF_MS = setting(
    "sasl.login.retry.backoff.ms",
    Ms,
    default=100,
    inert=NO_OAUTH,
    doc="How long to wait before the identity provider is first asked again.",
)
SASL_LOGIN_RETRY_BACKOFF_MAX_MS = setting(
    "sasl.login.retry.backoff.max.ms", Ms, default=10 * SECOND, inert=NO_OAUTH, doc="How far that time grows."
)
