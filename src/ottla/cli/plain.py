"""Converts values to JSON and back.

Bytes are a string if they are UTF-8, else an object with the one member `base64`; the conversion round-trips.
"""

import base64
import binascii
import json
from typing import Any


def to_plain(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, tuple | list):
        return [to_plain(one) for one in value]
    if isinstance(value, dict):
        return {name: to_plain(one) for name, one in value.items()}
    return value


def bytes_from_plain(value: Any) -> bytes | None:
    """Bytes from a string or a `base64` object; anything else becomes its JSON text. Raises ValueError."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and list(value) == ["base64"] and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error as error:
            raise ValueError(f"{value['base64']!r} is not base64: {error}") from None
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def json_line(fields: dict[str, Any]) -> str:
    return json.dumps(to_plain(fields), ensure_ascii=False) + "\n"
