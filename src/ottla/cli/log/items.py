"""What a dump is made of: a stream of items, which a table shows to people and JSON lines tell to programs."""

from typing import Any, NamedTuple

Fields = dict[str, Any]


class Item(NamedTuple):
    """`kind` says which fields there are; `file` is the name of the file they were found in."""

    kind: str
    file: str
    fields: Fields
