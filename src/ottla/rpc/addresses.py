"""Addresses of brokers."""

from typing import Final, NamedTuple

DEFAULT_PORT: Final = 9092
_PORT_MAX: Final = 65_535


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(text: str) -> list[Address]:
    """Parse `host:port,host:port`. The port is optional; an IPv6 host is in brackets. Raises ValueError."""
    addresses = [_parse(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise ValueError(f"{text!r} names no broker: expected HOST:PORT, several separated by commas")
    return list(dict.fromkeys(addresses))


def _parse(text: str) -> Address:
    host, separator, port = text.rpartition(":")
    if not separator or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: write an IPv6 address in brackets, as in [::1]:{DEFAULT_PORT}")
    if not host:
        raise ValueError(f"{text!r} names no host: expected HOST:PORT")
    if not port.isascii() or not port.isdecimal() or not 0 < int(port) <= _PORT_MAX:
        raise ValueError(f"{text!r}: {port!r} is no port; ports are 1 to {_PORT_MAX}")
    return Address(host, int(port))
