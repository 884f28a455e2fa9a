"""Where a PostgreSQL database is: postgresql://user@host:5432/database. A password in it is refused, and not shown."""

from typing import Final
from urllib.parse import urlsplit

from ottla.pipelines.problems import Unfit
from ottla.pipelines.values import Kind

_EXPECTS: Final = "an address such as postgresql://shop@localhost:5432/shop"


class SecretFound(Unfit):
    """The value must not be repeated to anybody."""


def _read(value: object) -> str:
    if not isinstance(value, str):
        raise Unfit(_EXPECTS)
    try:
        parts = urlsplit(value)
        if parts.password is not None or "password=" in parts.query:
            told = "has a password in it; put that into an environment variable and name it with password_variable"
            raise SecretFound(_EXPECTS, told)
        fits = parts.scheme in ("postgresql", "postgres") and bool(parts.hostname and parts.path.strip("/"))
        fits = fits and parts.port != 0
    except ValueError as error:
        if isinstance(error, Unfit):
            raise
        fits = False
    if not fits:
        raise Unfit(_EXPECTS)
    return value


POSTGRES_URL: Final = Kind(_EXPECTS, _read, str)
