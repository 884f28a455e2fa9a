"""TLS, principals, delegation tokens."""

from ottla.config.inert import JAVA_ONLY, NO_ACLS, NO_PLUGINS, NO_TLS, NO_TOKENS
from ottla.config.notation import DAY, HOUR, Bool, ClassName, ListOf, Ms, Password, String, optional, setting

# Who may do what
AUTHORIZER_CLASS_NAME = setting(
    "authorizer.class.name",
    String,
    default="",
    inert=NO_ACLS,
    doc="What decides who may do what. Empty: everybody may do everything. Kafka's is "
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer.",
)
PRINCIPAL_BUILDER_CLASS = setting(
    "principal.builder.class",
    ClassName,
    default="org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    per_broker=True,
    inert=NO_PLUGINS,
    doc="A class that makes a principal of what is known about a connection.",
)
SECURITY_PROVIDERS = setting(
    "security.providers",
    optional(String),
    default=None,
    inert=JAVA_ONLY,
    doc="Classes that provide security algorithms.",
)
DELEGATION_TOKEN_SECRET_KEY = setting(
    "delegation.token.secret.key",
    optional(Password),
    default=None,
    inert=NO_TOKENS,
    doc="The secret that delegation tokens are signed with; the same on every broker. Where not set, there are none.",
)
DELEGATION_TOKEN_MAX_LIFETIME_MS = setting(
    "delegation.token.max.lifetime.ms",
    Ms,
    default=7 * DAY,
    at_least=1,
    inert=NO_TOKENS,
    doc="How long a delegation token can be kept alive by renewing it.",
)
DELEGATION_TOKEN_EXPIRY_TIME_MS = setting(
    "delegation.token.expiry.time.ms",
    Ms,
    default=1 * DAY,
    at_least=1,
    inert=NO_TOKENS,
    doc="How long a delegation token lives without being renewed.",
)
DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS = setting(
    "delegation.token.expiry.check.interval.ms",
    Ms,
    default=1 * HOUR,
    at_least=1,
    inert=NO_TOKENS,
    doc="How often to look for delegation tokens to remove.",
)

# TLS: the node's own key
SSL_KEYSTORE_TYPE = setting(
    "ssl.keystore.type",
    String,
    default="JKS",
    per_broker=True,
    per_listener=True,
    inert=NO_TLS,
    doc="The format of the file with the node's key: JKS, PKCS12 or PEM.",
)
SSL_KEYSTORE_LOCATION = setting(
    "ssl.keystore.location",
    optional(String),
    default=None,
    per_broker=True,
    per_listener=True,
    inert=NO_TLS,
    doc="The file with the node's key and certificate.",
)
SSL_KEYSTORE_PASSWORD = setting(
    "ssl.keystore.password",
    optional(Password),
    default=None,
    per_broker=True,
    per_listener=True,
    inert=NO_TLS,
    doc="The password of that file.",
)
SSL_KEY_PASSWORD = setting(
    "ssl.key.password",
    optional(Password),
    default=None,
    per_broker=True,
    per_listener=True,
    inert=NO_TLS,
    doc="The password of the key.",
)
SSL_KEYSTORE_KEY = setting(
    "ssl.keystore.key",
    optional(Password),
    default=None,
    per_broker=True,
    per_listener=True,
    inert=NO_TLS,
    doc="The node's key itself, as PEM, instead of a file.",
)
SSL_KEYSTORE_CERTIFICATE_CHAIN = setting(
    "ssl.keystore.certificate.chain",
    optional(Password),
    default=None,
    per_broker=True,
    per_listener=True,
    inert=NO_TLS,
    doc="The node's certificate and its issuers', as PEM, instead of a file.",
)

# TLS: whom the node trusts
SSL_TRUSTSTORE_TYPE = setting(
    "ssl.truststore.type",
    String,
    default="JKS",
    per_broker=True,
    per_listener=True,
    inert=NO_TLS,
    doc="The format of the file with trusted certificates: JKS, PKCS12 or PEM.",
)
SSL_TRUSTSTORE_LOCATION = setting(
    "ssl.truststore.location",
    optional(String),
    default=None,
    per_broker=True,
    per_listener=True,
    inert=NO_TLS,
    doc="The file with trusted certificates.",
)
SSL_TRUSTSTORE_PASSWORD = setting(
    "ssl.truststore.password",
    optional(Password),
    default=None,
    per_broker=True,
    per_listener=True,
    inert=NO_TLS,
    doc="The password of that file.",
)
SSL_TRUSTSTORE_CERTIFICATES = setting(
    "ssl.truststore.certificates",
    optional(Password),
    default=None,
    per_broker=True,
    per_listener=True,
    inert=NO_TLS,
    doc="The trusted certificates themselves, as PEM, instead of a file.",
)
SSL_CLIENT_AUTH = setting(
    "ssl.client.auth",
    String,
    default="none",
    one_of=("required", "requested", "none"),
    per_broker=True,
    inert=NO_TLS,
    doc="Whether a client must, may or need not show a certificate.",
)
SSL_PRINCIPAL_MAPPING_RULES = setting(
    "ssl.principal.mapping.rules",
    String,
    default="DEFAULT",
    inert=NO_TLS,
    doc="How a certificate's name becomes a user's name: rules, the first that fits counts.",
)
SSL_ENDPOINT_IDENTIFICATION_ALGORITHM = setting(
    "ssl.endpoint.identification.algorithm",
    String,
    default="https",
    per_broker=True,
    inert=NO_TLS,
    doc="How a server's certificate is held against its host name. Empty: not at all.",
)
SSL_ALLOW_DN_CHANGES = setting(
    "ssl.allow.dn.changes",
    Bool,
    default=False,
    inert=NO_TLS,
    doc="A certificate that is replaced while the node runs may have another distinguished name.",
)
SSL_ALLOW_SAN_CHANGES = setting(
    "ssl.allow.san.changes",
    Bool,
    default=False,
    inert=NO_TLS,
    doc="A certificate that is replaced while the node runs may drop alternative names.",
)

# TLS: the protocol
SSL_PROTOCOL = setting(
    "ssl.protocol", String, default="TLSv1.3", per_broker=True, inert=NO_TLS, doc="The newest version of TLS to use."
)
SSL_ENABLED_PROTOCOLS = setting(
    "ssl.enabled.protocols",
    ListOf,
    default=("TLSv1.2", "TLSv1.3"),
    per_broker=True,
    inert=NO_TLS,
    doc="The versions of TLS to accept.",
)
SSL_CIPHER_SUITES = setting(
    "ssl.cipher.suites",
    ListOf,
    default=(),
    per_broker=True,
    inert=NO_TLS,
    doc="The cipher suites to accept. Empty: the library's choice.",
)
SSL_PROVIDER = setting(
    "ssl.provider", optional(String), default=None, per_broker=True, inert=JAVA_ONLY, doc="Java's provider of TLS."
)
SSL_KEYMANAGER_ALGORITHM = setting(
    "ssl.keymanager.algorithm",
    String,
    default="SunX509",
    per_broker=True,
    inert=JAVA_ONLY,
    doc="Java's way of choosing a key.",
)
SSL_TRUSTMANAGER_ALGORITHM = setting(
    "ssl.trustmanager.algorithm",
    String,
    default="PKIX",
    per_broker=True,
    inert=JAVA_ONLY,
    doc="Java's way of checking a certificate.",
)
SSL_SECURE_RANDOM_IMPLEMENTATION = setting(
    "ssl.secure.random.implementation",
    optional(String),
    default=None,
    per_broker=True,
    inert=JAVA_ONLY,
    doc="Java's source of random numbers.",
)
SSL_ENGINE_FACTORY_CLASS = setting(
    "ssl.engine.factory.class",
    optional(ClassName),
    default=None,
    per_broker=True,
    inert=NO_PLUGINS,
    doc="A class that makes TLS engines.",
)
