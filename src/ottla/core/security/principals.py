"""The identity that a connection was authenticated as."""

from typing import Final, NamedTuple


class Principal(NamedTuple):
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""Of every connection to a listener that asks for no authentication."""
