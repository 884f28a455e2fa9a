"""What a dead letter says of itself: the names of the headers beside its own. Their values are text."""

from typing import Final

TOPIC: Final = "ottla.dlq.topic"
PARTITION: Final = "ottla.dlq.partition"
OFFSET: Final = "ottla.dlq.offset"
ERROR: Final = "ottla.dlq.error"
PIPELINE: Final = "ottla.dlq.pipeline"
EPOCH: Final = "ottla.dlq.epoch"

HEADERS: Final = (TOPIC, PARTITION, OFFSET, ERROR, PIPELINE, EPOCH)
