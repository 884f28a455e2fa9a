"""Functions that read requests and build responses of the classic protocol."""

from ottla.core.groups.classic_group import ClassicGroup, ClassicMember, Protocols
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.api.sync_group import SyncGroupResponse
from ottla.wire.errors import Error


def join_refused(error: Error, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, protocol_name=None, leader="", member_id=member_id, members=[])


def sync_refused(error: Error) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error, assignment=b"")


def synced(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=Error.NONE,
        protocol_type=group.protocol_type or None,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def protocols(request: JoinGroupRequest) -> Protocols:
    return tuple((protocol.name, protocol.metadata) for protocol in request.protocols)


def differs(asked: str | None, known: str | None) -> bool:
    """Whether a protocol name in a request differs from the group's. Older clients send no name."""
    return asked is not None and known is not None and asked != known
