from ottla.config import Config
from ottla.core.log.segment import Segment
from ottla.core.log.state import LogState
from ottla.kernel import Record, build_batch, read_header


def test_last_stable_offset_is_never_before_the_log_start() -> None:
    """Deleting records up to the middle of an open transaction must not send readers to what is gone."""
    log = LogState("t-0", Config.of(), [Segment(0)], end_offset=0)
    for offset in range(3):
        data = build_batch(
            [Record(offset, 0, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=offset, transactional=True
        )
        log.appended(read_header(data), None)
    log.advance_high_watermark(3)
    assert log.last_stable_offset == 0
    log.advance_log_start(2)
    assert log.last_stable_offset == 2
