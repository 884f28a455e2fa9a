"""Settings: one declaration each, and the effective values of a broker, its topics and groups.

Every setting is a name of this package, whichever area declares it: `config[SEGMENT_BYTES]`, `config[LISTENERS]`.
"""

from ottla.config.config import Config as Config
from ottla.config.config import ConfigSource as ConfigSource
from ottla.config.config import ConfigSynonym as ConfigSynonym
from ottla.config.config import InvalidConfig as InvalidConfig
from ottla.config.groups import *  # noqa: F403
from ottla.config.log import *  # noqa: F403
from ottla.config.metrics import *  # noqa: F403
from ottla.config.network import *  # noqa: F403
from ottla.config.notation import Scope as Scope
from ottla.config.notation import Secret as Secret
from ottla.config.notation import Setting as Setting
from ottla.config.notation import Update as Update
from ottla.config.oauth import *  # noqa: F403
from ottla.config.properties import BadProperties as BadProperties
from ottla.config.properties import parse_properties as parse_properties
from ottla.config.quorum import *  # noqa: F403
from ottla.config.registry import BROKER_SETTINGS as BROKER_SETTINGS
from ottla.config.registry import CLIENT_METRICS_SETTINGS as CLIENT_METRICS_SETTINGS
from ottla.config.registry import GROUP_SETTINGS as GROUP_SETTINGS
from ottla.config.registry import SETTINGS as SETTINGS
from ottla.config.registry import TOPIC_SETTINGS as TOPIC_SETTINGS
from ottla.config.remote import *  # noqa: F403
from ottla.config.replication import *  # noqa: F403
from ottla.config.sasl import *  # noqa: F403
from ottla.config.security import *  # noqa: F403
from ottla.config.share import *  # noqa: F403
from ottla.config.streams import *  # noqa: F403
from ottla.config.topic import *  # noqa: F403
from ottla.config.transactions import *  # noqa: F403
