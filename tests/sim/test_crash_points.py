"""One script of 200 operations, with the power lost before every single change of the disk."""

import pytest

from ottla.sim.log.crash_points import OUTCOMES_PER_POINT, run_crash_points


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 8])
def test_every_crash_point_of_a_script(seed: int) -> None:
    """Odd seeds compact, even ones delete; what is durable is always found, and nothing that was never written."""
    report = run_crash_points(seed)
    assert report.operations == 200
    assert report.points > 400
    assert report.outcomes == report.points * OUTCOMES_PER_POINT
    assert report.lost > report.outcomes // 20, "a disk that loses nothing proves nothing"
