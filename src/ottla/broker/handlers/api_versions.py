"""ApiVersions: what this node speaks. Every client asks this first."""

import re
from functools import cache

from ottla.broker.dispatch import ROUTES, Call
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
"""Java's older clients fail at a feature whose levels begin at 0 (KAFKA-17011)."""


def api_versions(request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse:
    if call.version >= _SOFTWARE_SINCE:
        names = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(name) for name in names):
            return ApiVersionsResponse(error_code=Error.INVALID_REQUEST, api_keys=[])
        call.connection.client_software = names
    quorum = call.node.metadata
    return ApiVersionsResponse(
        error_code=Error.NONE,
        api_keys=_served(),
        supported_features=[
            SupportedFeatureKey(name=one.name, min_version=one.lowest, max_version=one.highest)
            for one in ADVERTISED
            if one.lowest > 0 or call.version >= _LEVEL_ZERO_SINCE
        ],
        finalized_features_epoch=quorum.high_watermark - 1,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted({**quorum.image.features, KRAFT_VERSION: quorum.kraft_version}.items())
            if level > 0 and is_advertised(name)
        ],
    )


def unsupported_version() -> ApiVersionsResponse:
    """For a version we lack: which ones there are."""
    versions = [one for one in _served() if one.api_key == ApiKey.API_VERSIONS]
    return ApiVersionsResponse(error_code=Error.UNSUPPORTED_VERSION, api_keys=versions)


@cache
def _served() -> list[ApiVersion]:
    """The same for everybody: each new connection begins with this question."""
    return [_version(key) for key in sorted(ROUTES)]


def _version(key: ApiKey) -> ApiVersion:
    facts = message_of(request_class(key))
    first, last = facts.versions[0], facts.versions[-1]
    if facts.unstable:
        last -= 1
    if key is ApiKey.PRODUCE:
        # Refused below 3, but librdkafka takes a broker that does not name them for one that cannot compress.
        first = 0
    return ApiVersion(api_key=key, min_version=first, max_version=last)
