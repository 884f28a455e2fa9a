"""The DescribeClientQuotas API, all versions."""

from ottla.wire.schema import message, struct
from ottla.wire.types import Bool, Float64, Int8, Int16, Int32, String


@struct
class ComponentData:
    entity_type: String
    match_type: Int8
    match: String | None


@message(api_key=48, versions=(0, 1), flexible=1, listeners=("broker",))
class DescribeClientQuotasRequest:
    """List the quotas of the entities that match."""

    components: list[ComponentData]
    strict: Bool


@struct
class EntityData:
    entity_type: String
    entity_name: String | None


@struct
class ValueData:
    key: String
    value: Float64


@struct
class EntryData:
    entity: list[EntityData]
    values: list[ValueData]


@message(api_key=48, versions=(0, 1), flexible=1)
class DescribeClientQuotasResponse:
    """The matching entities and their quotas."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    entries: list[EntryData] | None
