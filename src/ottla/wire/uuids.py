"""Kafka's ids as text: sixteen bytes in URL-safe base64 without padding, as in `meta.properties` and Kafka's tools."""

from base64 import urlsafe_b64decode, urlsafe_b64encode

_TEXT_LENGTH = 22


def uuid_to_text(uuid: bytes) -> str:
    return urlsafe_b64encode(uuid)[:_TEXT_LENGTH].decode("ascii")


def uuid_from_text(text: str) -> bytes:
    """The id that a text names. Raises ValueError, with the text in it, if the text is not an id."""
    try:
        uuid = urlsafe_b64decode(text + "==") if len(text) == _TEXT_LENGTH else b""
    except ValueError:
        uuid = b""
    # The round trip also refuses letters outside the alphabet, which the decoder would skip.
    if len(uuid) != 16 or uuid_to_text(uuid) != text:
        raise ValueError(f"{text!r} is not an id: expected 22 letters of URL-safe base64")
    return uuid
