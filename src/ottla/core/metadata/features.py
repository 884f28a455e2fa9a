"""The features of a cluster and their levels, and the first records of a new cluster.

Rule 1: names, ranges and levels are those of Kafka 4.3, so that its nodes can read what is written here.
Rule 2: a cluster whose metadata.version is out of range is not opened: its records could not be written correctly.
Rule 3: only implemented features are advertised to clients. Levels that Kafka wrote for others stay in the metadata.
"""

from typing import Final

from ottla.core.metadata.image import BROKER, METADATA_VERSION, FeatureRange, Image
from ottla.core.metadata.records import MetadataRecord
from ottla.core.runtime.decision import Decision
from ottla.wire.errors import Error, Refused
from ottla.wire.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)

ELR_VERSION: Final = "eligible.leader.replicas.version"
GROUP_VERSION: Final = "group.version"
KRAFT_VERSION: Final = "kraft.version"
TRANSACTION_VERSION: Final = "transaction.version"

SUPPORTED: Final = (
    FeatureRange(ELR_VERSION, 0, 1),
    FeatureRange(GROUP_VERSION, 0, 1),
    FeatureRange(KRAFT_VERSION, 0, 1),
    FeatureRange(METADATA_VERSION, 7, 30),
    FeatureRange("share.version", 0, 1),
    FeatureRange("streams.version", 0, 1),
    FeatureRange(TRANSACTION_VERSION, 0, 2),
)
_NOT_BUILT: Final = ("share.version", "streams.version")
ADVERTISED: Final = tuple(feature for feature in SUPPORTED if feature.name not in _NOT_BUILT)
LATEST_LEVEL: Final = 30
_TRANSACTIONS_LEVEL: Final = 14  # 3.6-IV2: records may be part of metadata transactions.
_RANGES: Final = {feature.name: feature for feature in SUPPORTED}
_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3


class UnsupportedCluster(Exception):
    """The cluster's feature levels are not supported by this release."""


def is_advertised(name: str) -> bool:
    return name not in _NOT_BUILT


def is_elr_enabled(image: Image) -> bool:
    return image.features.get(ELR_VERSION, 0) > 0


def bootstrap_records() -> list[MetadataRecord]:
    """The levels of a new cluster: the latest of each feature, metadata.version first."""
    others = [feature for feature in SUPPORTED if feature.name not in (METADATA_VERSION, KRAFT_VERSION)]
    return [
        FeatureLevelRecord(name=METADATA_VERSION, feature_level=LATEST_LEVEL),
        *(FeatureLevelRecord(name=feature.name, feature_level=feature.highest) for feature in others),
    ]


def activate(image: Image, bootstrap: list[MetadataRecord], min_insync_replicas: int) -> Decision[None]:
    """The first records of a new leader: those of a new cluster, or the abort of an unfinished metadata transaction."""
    if image.level:
        torn = [AbortTransactionRecord(reason="Controller failover")] if image.in_transaction else []
        return Decision(None, torn)
    levels = {record.name: record.feature_level for record in bootstrap if isinstance(record, FeatureLevelRecord)}
    first = list(bootstrap)
    if levels.get(ELR_VERSION, 0) > 0:
        # Eligible leader replicas depend on the value of the cluster, so no broker may have another value.
        first.append(
            ConfigRecord(
                resource_type=BROKER, resource_name="", name="min.insync.replicas", value=str(min_insync_replicas)
            )
        )
    if levels.get(METADATA_VERSION, LATEST_LEVEL) >= _TRANSACTIONS_LEVEL:
        first = [BeginTransactionRecord(name="Bootstrap records"), *first, EndTransactionRecord()]
        if image.in_transaction:
            first.insert(0, AbortTransactionRecord(reason="Controller failover"))
    return Decision(None, first)


def check_supported(image: Image) -> None:
    for name in sorted(image.features):
        known, level = _RANGES.get(name), image.features[name]
        if known is None:
            raise UnsupportedCluster(f"the cluster has feature {name} at level {level}, which is not known here")
        if not known.lowest <= level <= known.highest:
            raise UnsupportedCluster(
                f"the cluster has {name} at level {level}; levels {known.lowest} to {known.highest} are known here"
            )


UPDATES_MAX: Final = 100
"""Maximum number of features that one request may update."""


class FeatureUpdate:
    """A change of the level of one feature, requested by UpdateFeatures."""

    __slots__ = ("level", "name", "upgrade_type")

    def __init__(self, name: str, level: int, upgrade_type: int) -> None:
        self.name, self.level, self.upgrade_type = name, level, upgrade_type


def update_features(image: Image, updates: list[FeatureUpdate], *, validate_only: bool) -> Decision[Refused | None]:
    """Apply all of the updates or none. The reply is the error of the first invalid update."""
    if len(updates) > UPDATES_MAX:
        reason = f"more than {UPDATES_MAX} features; this cluster has {len(_RANGES)}"
        return Decision(Refused(Error.INVALID_REQUEST, reason))
    records: list[MetadataRecord] = []
    for update in {update.name: update for update in updates}.values():  # The last of each name counts, as in Kafka.
        try:
            _check_update(image, update)
        except Refused as refusal:
            return Decision(refusal)
        records.append(FeatureLevelRecord(name=update.name, feature_level=update.level))
    return Decision(None, [] if validate_only else records)


def _check_update(image: Image, update: FeatureUpdate) -> None:
    known, now = _RANGES.get(update.name), image.features.get(update.name, 0)
    if update.upgrade_type not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        raise Refused(
            Error.INVALID_UPDATE_VERSION, f"{update.name}: {update.upgrade_type} is no way to change a feature"
        )
    if known is None:
        raise Refused(Error.INVALID_UPDATE_VERSION, f"{update.name} is no feature of this cluster")
    if update.level > now and not is_advertised(update.name):
        raise Refused(Error.INVALID_UPDATE_VERSION, f"{update.name}: what it enables is not built yet")
    if not known.lowest <= update.level <= known.highest:
        raise Refused(
            Error.INVALID_UPDATE_VERSION,
            f"{update.name} cannot have level {update.level}: {known.lowest} to {known.highest} are supported",
        )
    if update.name == KRAFT_VERSION:
        raise Refused(Error.INVALID_UPDATE_VERSION, "kraft.version is chosen when the cluster is made")
    if update.name == METADATA_VERSION and update.level < now:
        raise Refused(
            Error.INVALID_UPDATE_VERSION,
            f"metadata.version {now} cannot go back to {update.level}: records would be lost",
        )
    if update.level < now and update.upgrade_type == _UPGRADE:
        raise Refused(
            Error.INVALID_UPDATE_VERSION,
            f"{update.name} is at level {now}; going back to {update.level} is a downgrade",
        )
    if update.level > now and update.upgrade_type != _UPGRADE:
        raise Refused(
            Error.INVALID_UPDATE_VERSION, f"{update.name} is at level {now}; {update.level} would be no downgrade"
        )
