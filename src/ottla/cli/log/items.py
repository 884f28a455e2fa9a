"""The items of a dump, which are shown as tables for people or as JSON lines for programs."""

from typing import Any, NamedTuple

Fields = dict[str, Any]


class Item(NamedTuple):
    """`kind` determines the fields; `file` is the name of the file they were found in."""

    kind: str
    file: str
    fields: Fields
