"""`python -m ottla.config > docs/settings.md`: print the documentation's page of settings."""

from ottla.config.reference import settings_page

print(settings_page(), end="")
