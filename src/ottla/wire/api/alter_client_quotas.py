"""The AlterClientQuotas API, all versions."""

from ottla.wire.schema import message, struct
from ottla.wire.types import Bool, Float64, Int16, Int32, String


@struct
class EntityData:
    entity_type: String
    entity_name: String | None


@struct
class OpData:
    key: String
    value: Float64
    remove: Bool


@struct
class RequestEntryData:
    entity: list[EntityData]
    ops: list[OpData]


@message(api_key=49, versions=(0, 1), flexible=1, listeners=("broker", "controller"))
class AlterClientQuotasRequest:
    """Set or remove quotas of users, clients and addresses."""

    entries: list[RequestEntryData]
    validate_only: Bool


@struct
class ResponseEntryData:
    error_code: Int16
    error_message: String | None
    entity: list[EntityData]


@message(api_key=49, versions=(0, 1), flexible=1)
class AlterClientQuotasResponse:
    """The outcome per entity whose quotas were to change."""

    throttle_time_ms: Int32
    entries: list[ResponseEntryData]
