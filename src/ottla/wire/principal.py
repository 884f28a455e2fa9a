"""The principal of a client whose request a broker forwards to the controller."""

from ottla.wire.schema import message
from ottla.wire.types import Bool, String


@message(versions=(0, 0), flexible=0)
class DefaultPrincipalData:
    """A principal as one node sends it to another."""

    type: String
    name: String
    token_authenticated: Bool
