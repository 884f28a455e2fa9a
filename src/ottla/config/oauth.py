"""Authentication with OAuth: how tokens are obtained and validated."""

from ottla.config.inert import NO_OAUTH, NO_PLUGINS
from ottla.config.notation import (
    HOUR,
    SECOND,
    Bool,
    ClassName,
    ListOf,
    Ms,
    Password,
    Seconds,
    String,
    optional,
    setting,
)

# Checking a token
SASL_OAUTHBEARER_EXPECTED_ISSUER = setting(
    "sasl.oauthbearer.expected.issuer",
    optional(String),
    default=None,
    inert=NO_OAUTH,
    doc="Accept only tokens that this issuer made.",
)
SASL_OAUTHBEARER_EXPECTED_AUDIENCE = setting(
    "sasl.oauthbearer.expected.audience",
    ListOf,
    default=(),
    inert=NO_OAUTH,
    doc="Accept only tokens made for one of these.",
)
SASL_OAUTHBEARER_SCOPE_CLAIM_NAME = setting(
    "sasl.oauthbearer.scope.claim.name",
    String,
    default="scope",
    inert=NO_OAUTH,
    doc="What the claim with the scope is called in tokens.",
)
SASL_OAUTHBEARER_SUB_CLAIM_NAME = setting(
    "sasl.oauthbearer.sub.claim.name",
    String,
    default="sub",
    inert=NO_OAUTH,
    doc="What the claim with the user's name is called in tokens.",
)
SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS = setting(
    "sasl.oauthbearer.clock.skew.seconds",
    Seconds,
    default=30,
    inert=NO_OAUTH,
    doc="How far the issuer's clock and the broker's may differ.",
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_URL = setting(
    "sasl.oauthbearer.jwks.endpoint.url",
    optional(String),
    default=None,
    inert=NO_OAUTH,
    doc="Where the issuer's keys are.",
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS = setting(
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    Ms,
    default=1 * HOUR,
    inert=NO_OAUTH,
    doc="How often the issuer's keys are fetched anew.",
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS = setting(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    Ms,
    default=100,
    inert=NO_OAUTH,
    doc="How long to wait before keys that could not be fetched are first asked for again.",
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS = setting(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    Ms,
    default=10 * SECOND,
    inert=NO_OAUTH,
    doc="How far that time grows.",
)
SASL_OAUTHBEARER_JWT_VALIDATOR_CLASS = setting(
    "sasl.oauthbearer.jwt.validator.class",
    ClassName,
    default="org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
    inert=NO_PLUGINS,
    doc="A class that checks tokens.",
)

# Getting a token
SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL = setting(
    "sasl.oauthbearer.token.endpoint.url",
    optional(String),
    default=None,
    inert=NO_OAUTH,
    doc="Where tokens are asked for.",
)
SASL_OAUTHBEARER_SCOPE = setting(
    "sasl.oauthbearer.scope", optional(String), default=None, inert=NO_OAUTH, doc="The scope that tokens are asked for."
)
SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_ID = setting(
    "sasl.oauthbearer.client.credentials.client.id",
    optional(String),
    default=None,
    inert=NO_OAUTH,
    doc="The id that tokens are asked for with.",
)
SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_SECRET = setting(
    "sasl.oauthbearer.client.credentials.client.secret",
    optional(Password),
    default=None,
    inert=NO_OAUTH,
    doc="The secret of that id.",
)
SASL_OAUTHBEARER_JWT_RETRIEVER_CLASS = setting(
    "sasl.oauthbearer.jwt.retriever.class",
    ClassName,
    default="org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
    inert=NO_PLUGINS,
    doc="A class that gets tokens.",
)

# Assertions: asking with a signed statement instead of a secret
SASL_OAUTHBEARER_ASSERTION_FILE = setting(
    "sasl.oauthbearer.assertion.file",
    optional(String),
    default=None,
    inert=NO_OAUTH,
    doc="A file with an assertion that is ready; then the settings of its parts do not count.",
)
SASL_OAUTHBEARER_ASSERTION_TEMPLATE_FILE = setting(
    "sasl.oauthbearer.assertion.template.file",
    optional(String),
    default=None,
    inert=NO_OAUTH,
    doc="A file with further headers and claims of the assertion.",
)
SASL_OAUTHBEARER_ASSERTION_PRIVATE_KEY_FILE = setting(
    "sasl.oauthbearer.assertion.private.key.file",
    optional(String),
    default=None,
    inert=NO_OAUTH,
    doc="The file with the key that assertions are signed with, as PEM.",
)
SASL_OAUTHBEARER_ASSERTION_PRIVATE_KEY_PASSPHRASE = setting(
    "sasl.oauthbearer.assertion.private.key.passphrase",
    optional(Password),
    default=None,
    inert=NO_OAUTH,
    doc="The password of that key.",
)
SASL_OAUTHBEARER_ASSERTION_ALGORITHM = setting(
    "sasl.oauthbearer.assertion.algorithm",
    String,
    default="RS256",
    one_of=("ES256", "RS256"),
    any_case=True,
    inert=NO_OAUTH,
    doc="How assertions are signed.",
)
SASL_OAUTHBEARER_ASSERTION_CLAIM_ISS = setting(
    "sasl.oauthbearer.assertion.claim.iss",
    optional(String),
    default=None,
    inert=NO_OAUTH,
    doc="Who issues the assertion.",
)
SASL_OAUTHBEARER_ASSERTION_CLAIM_SUB = setting(
    "sasl.oauthbearer.assertion.claim.sub",
    optional(String),
    default=None,
    inert=NO_OAUTH,
    doc="Whom the assertion is about.",
)
SASL_OAUTHBEARER_ASSERTION_CLAIM_AUD = setting(
    "sasl.oauthbearer.assertion.claim.aud",
    optional(String),
    default=None,
    inert=NO_OAUTH,
    doc="For whom the assertion is.",
)
SASL_OAUTHBEARER_ASSERTION_CLAIM_EXP_SECONDS = setting(
    "sasl.oauthbearer.assertion.claim.exp.seconds",
    Seconds,
    default=300,
    at_least=0,
    at_most=86_400,
    inert=NO_OAUTH,
    doc="How long the assertion holds.",
)
SASL_OAUTHBEARER_ASSERTION_CLAIM_NBF_SECONDS = setting(
    "sasl.oauthbearer.assertion.claim.nbf.seconds",
    Seconds,
    default=60,
    at_least=0,
    at_most=3600,
    inert=NO_OAUTH,
    doc="From how long before its making the assertion holds.",
)
SASL_OAUTHBEARER_ASSERTION_CLAIM_JTI_INCLUDE = setting(
    "sasl.oauthbearer.assertion.claim.jti.include",
    Bool,
    default=False,
    inert=NO_OAUTH,
    doc="Give each assertion an id of its own.",
)
