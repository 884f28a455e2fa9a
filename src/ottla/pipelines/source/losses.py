"""Reports records that were gone before the pipeline read them. The pipeline stops or warns, as its spec says."""

from collections.abc import Sequence

from ottla.observe.trace import warn
from ottla.pipelines.source.ranges import Loss
from ottla.pipelines.spec.model import DataLoss


class DataLost(Exception):
    """Records that were to be read are gone. The text says which ones and what can be done."""


def report(losses: Sequence[Loss], choice: DataLoss, source: str) -> None:
    """Warn of each loss, or raise DataLost if the pipeline is to stop."""
    if not losses:
        return
    if choice is DataLoss.WARN:
        for loss in losses:
            warn("pipeline.data_lost", source=source, partition=str(loss.partition), text=str(loss))
        return
    more = f" (and {len(losses) - 1} more)" if len(losses) > 1 else ""
    table = f" of [source.{source}]" if source else ""
    raise DataLost(
        f'{losses[0]}{more}. To go on without them set on_data_loss = "warn"{table}; '
        "to keep records until they are read raise retention.ms and retention.bytes of the topic"
    )
