"""Which version of a request to send.

Rule 1: the newest version that both sides support. A version that may still change (`unstable`) is never sent.
Rule 2: ApiVersions is sent first, in our newest version. A server that does not know this version answers in the format
        of version 0 and lists the versions it knows (KIP-511); the request is sent again in one of them.
"""

from typing import Any, NamedTuple

from ottla.wire.api import ApiKey
from ottla.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.codec import decode_from
from ottla.wire.errors import Error
from ottla.wire.frame import decode_response
from ottla.wire.schema import message_of
from ottla.wire.types import Buffer

ASKED_FIRST = message_of(ApiVersionsRequest).versions[-1]
_BODY_AT = 4  # After the correlation id: the header of this response never changes.


class VersionRange(NamedTuple):
    """First and last version of a request that a server supports."""

    first: int
    last: int


class NoCommonVersion(Exception):
    """The two sides have no common version of a request; `theirs` is None if the server does not support the request at
    all."""

    def __init__(self, api: ApiKey, ours: VersionRange, theirs: VersionRange | None) -> None:
        self.api, self.ours, self.theirs = api, ours, theirs
        super().__init__(f"{api.name}: ours {ours}, theirs {theirs}")


class Versions:
    """The versions a server supports."""

    def __init__(self, answer: ApiVersionsResponse) -> None:
        self._spoken = {api.api_key: VersionRange(api.min_version, api.max_version) for api in answer.api_keys}
        self.features = {feature.name: feature.max_version_level for feature in answer.finalized_features}

    def spoken(self, api: ApiKey) -> VersionRange | None:
        return self._spoken.get(api)

    def choose(self, request: type[Any], at_most: int | None = None) -> int:
        """The version to send; `at_most` is the newest the caller can fill in. Raises NoCommonVersion."""
        facts = message_of(request)
        assert facts.api_key is not None
        last = facts.versions[-1] - facts.unstable
        ours = VersionRange(facts.versions[0], last if at_most is None else min(last, at_most))
        theirs = self._spoken.get(facts.api_key)
        if theirs is None or theirs.last < ours.first or theirs.first > ours.last:
            raise NoCommonVersion(ApiKey(facts.api_key), ours, theirs)
        return min(ours.last, theirs.last)


def decode_api_versions(version: int, frame: Buffer) -> ApiVersionsResponse:
    """Decode the response to ApiVersions, also in the format of version 0. Raises Malformed."""
    if int.from_bytes(frame[_BODY_AT : _BODY_AT + 2], "big") == Error.UNSUPPORTED_VERSION:
        return decode_from(ApiVersionsResponse, 0, frame, _BODY_AT)[0]
    answer: ApiVersionsResponse = decode_response(ApiKey.API_VERSIONS, version, frame)[1]
    return answer


def ask_again_with(answer: ApiVersionsResponse) -> int:
    """The version of ApiVersions to send after the first was not supported."""
    for api in answer.api_keys:
        if api.api_key == ApiKey.API_VERSIONS:
            return max(0, min(api.max_version, ASKED_FIRST))
    return 0
