"""ApiVersions: the APIs and versions this node supports. Every client sends it first."""

import re
from functools import cache

from ottla.broker.network.dispatch import ROUTES, Call, ListenerRole, is_served
from ottla.core.metadata.features import ADVERTISED, KRAFT_VERSION, is_advertised
from ottla.wire.api import ApiKey, request_class
from ottla.wire.api.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla.wire.errors import Error
from ottla.wire.schema import message_of

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
_SOFTWARE_SINCE = 3
_LEVEL_ZERO_SINCE = 4
"""Older Java clients fail at a feature whose levels begin at 0 (KAFKA-17011)."""


def api_versions(request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse:
    if call.version >= _SOFTWARE_SINCE:
        names = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(name) for name in names):
            return ApiVersionsResponse(error_code=Error.INVALID_REQUEST, api_keys=[])
        call.connection.client_software = names
    metadata, kraft_version = call.node.metadata, call.node.raft_log.kraft_version
    return ApiVersionsResponse(
        error_code=Error.NONE,
        api_keys=_served(call.connection.role),
        supported_features=[
            SupportedFeatureKey(name=one.name, min_version=one.lowest, max_version=one.highest)
            for one in ADVERTISED
            if one.lowest > 0 or call.version >= _LEVEL_ZERO_SINCE
        ],
        finalized_features_epoch=metadata.end_offset - 1,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted({**metadata.image.features, KRAFT_VERSION: kraft_version}.items())
            if level > 0 and is_advertised(name)
        ],
    )


def unsupported_version() -> ApiVersionsResponse:
    """The response to an unsupported version of ApiVersions: it lists the supported versions."""
    return ApiVersionsResponse(error_code=Error.UNSUPPORTED_VERSION, api_keys=[_version(ApiKey.API_VERSIONS)])


@cache
def _served(role: ListenerRole) -> list[ApiVersion]:
    """The APIs of a listener role. Cached, because it is the same for every connection, and each asks for it first."""
    return [_version(key) for key in sorted(ROUTES) if is_served(key, role)]


def _version(key: ApiKey) -> ApiVersion:
    facts = message_of(request_class(key))
    first, last = facts.versions[0], facts.versions[-1]
    if facts.unstable:
        last -= 1
    if key is ApiKey.PRODUCE:
        # Produce below version 3 is refused, but librdkafka stops compressing if a broker does not advertise it.
        first = 0
    return ApiVersion(api_key=key, min_version=first, max_version=last)
