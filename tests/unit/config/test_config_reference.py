"""The documentation says what the declarations say."""

from pathlib import Path

from ottla.config import SETTINGS
from ottla.config.reference import settings_page

PAGE = Path(__file__).parents[3] / "docs" / "settings.md"


def test_page_is_current() -> None:
    assert PAGE.read_text() == settings_page(), "run: python -m ottla.config > docs/settings.md"


def test_page_names_every_setting_that_is_not_internal() -> None:
    page = settings_page()
    for setting in SETTINGS:
        assert (f"`{setting.topic or setting.name}`" in page) is not setting.internal


def test_page_marks_what_has_no_effect() -> None:
    assert settings_page().count("**no effect yet**") == sum(bool(s.inert) for s in SETTINGS if not s.internal) > 0
