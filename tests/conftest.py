"""What holds for every test."""

import os
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# No test fails for being slow: the machine may be busy.
settings.register_profile("ottla", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ottla")

OF_THE_SYSTEM = "this system "
"""How the reason begins of a test that is skipped for what the operating system lacks."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,  # noqa: ARG001  # pytest passes arguments by name.
    call: pytest.CallInfo[Any],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With CI=true everything that can be installed is: a test that is skipped for the lack of it has failed."""
    report = yield
    if report.skipped and os.environ.get("CI") == "true" and call.excinfo is not None:
        reason = str(call.excinfo.value)
        if not reason.startswith(OF_THE_SYSTEM):
            report.outcome = "failed"
            report.longrepr = f"skipped although CI=true: {reason}"
    return report
