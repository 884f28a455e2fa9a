"""The listeners of a node, from `listeners` and the settings around it.

Rule 1: names of listeners are upper-case and unique; `listener.security.protocol.map` gives the protocol of each.
Rule 2: a port belongs to one listener, except 0 (any free one) and one IPv4 beside one IPv6 address.
Rule 3: the listeners in `controller.listener.names` are the quorum's, all others the clients' and brokers'.
Rule 4: clients get `advertised.listeners`, or `listeners` if that is not set. An empty host there means the machine's
        own name; 0.0.0.0 is refused, because no client can connect to it.
"""

import ipaddress
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from ottla.config.config import Config, InvalidConfig
from ottla.config.network import ADVERTISED_LISTENERS, LISTENER_SECURITY_PROTOCOL_MAP, LISTENERS
from ottla.config.notation import Setting
from ottla.config.quorum import (
    CONTROLLER_LISTENER_NAMES,
    CONTROLLER_QUORUM_VOTERS,
    NODE_ID,
    PROCESS_ROLES,
)
from ottla.config.replication import INTER_BROKER_LISTENER_NAME, SECURITY_INTER_BROKER_PROTOCOL

ANYWHERE = "0.0.0.0"
PORT_MAX = 65_535
_ENDPOINT = re.compile(r"(.+)://\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)")
_HOST_AND_PORT = re.compile(r"\[?([0-9a-zA-Z\-%._:]+)\]?:([0-9]+)")


class Protocol(IntEnum):
    """The security protocol of a connection, by the numbers that brokers register."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


class Endpoint(NamedTuple):
    """One listener. An empty host means all interfaces."""

    name: str
    host: str
    port: int
    protocol: Protocol

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class Voter(NamedTuple):
    """One entry of `controller.quorum.voters`."""

    node_id: int
    host: str
    port: int


class Listeners(NamedTuple):
    """A node's listeners by purpose."""

    clients: tuple[Endpoint, ...]
    controllers: tuple[Endpoint, ...]
    advertised: tuple[Endpoint, ...]
    """The addresses for clients and brokers, by the names of `clients`."""
    between_brokers: str
    """The name of the listener that other brokers use."""


def listeners(config: Config) -> Listeners:
    """All listeners. Raises `InvalidConfig` with every problem."""
    problems: list[str] = []
    protocols = _protocols(config, problems)
    bound = _endpoints(LISTENERS, config[LISTENERS], protocols, problems)
    given = config[ADVERTISED_LISTENERS]
    advertised = _endpoints(ADVERTISED_LISTENERS, given or (), protocols, problems)
    if problems:
        raise InvalidConfig(problems)
    controller_names = {name.upper() for name in config[CONTROLLER_LISTENER_NAMES] or ()}
    clients = tuple(one for one in bound if one.name not in controller_names)
    for_clients = tuple(one for one in advertised or bound if one.name not in controller_names)
    found = Listeners(
        clients,
        tuple(one for one in bound if one.name in controller_names),
        for_clients,
        (config[INTER_BROKER_LISTENER_NAME] or config[SECURITY_INTER_BROKER_PROTOCOL]).upper(),
    )
    problems += _shared_ports(bound)
    problems += _wrong_for_roles(config, found, controller_names)
    if "broker" in config[PROCESS_ROLES]:
        problems += _wrong_for_brokers(config, found)
    if problems:
        raise InvalidConfig(problems)
    return found


def voters(config: Config) -> tuple[Voter, ...]:
    """The quorum's voters from the file; none if the metadata log has them."""
    problems, found = [], []
    for entry in config[CONTROLLER_QUORUM_VOTERS]:
        number, _, address = entry.partition("@")
        match = _HOST_AND_PORT.fullmatch(address)
        if match is None or not number.isdigit() or int(match[2]) > PORT_MAX:
            problems.append(f"{CONTROLLER_QUORUM_VOTERS.name}={entry}: must be ID@HOST:PORT")
        else:
            found.append(Voter(int(number), match[1], int(match[2])))
    ids = [voter.node_id for voter in found]
    problems += [
        f"{CONTROLLER_QUORUM_VOTERS.name}: voter {one} stands twice"
        for one in sorted({one for one in ids if ids.count(one) > 1})
    ]
    if not problems and found:
        node, is_voter = config[NODE_ID], config[NODE_ID] in ids
        if is_voter is not ("controller" in config[PROCESS_ROLES]):
            problems.append(
                f"{NODE_ID.name}={node} is {'' if is_voter else 'not '}among {CONTROLLER_QUORUM_VOTERS.name}: "
                f"exactly the nodes with controller in {PROCESS_ROLES.name} must be"
            )
    if problems:
        raise InvalidConfig(problems)
    return tuple(found)


def _protocols(config: Config, problems: list[str]) -> dict[str, Protocol]:
    setting = LISTENER_SECURITY_PROTOCOL_MAP
    protocols = {}
    for entry in filter(None, (part.strip() for part in config[setting].split(","))):
        name, _, protocol = (part.strip().upper() for part in entry.partition(":"))
        if not name or protocol not in Protocol.__members__:
            problems.append(
                f"{setting.name}={entry}: must be NAME:PROTOCOL with one of {', '.join(Protocol.__members__)}"
            )
        else:
            protocols[name] = Protocol[protocol]
    if not config.is_set(setting) and not _names_security(config):
        for name in config[CONTROLLER_LISTENER_NAMES] or ():
            protocols.setdefault(name.upper(), Protocol.PLAINTEXT)
    return protocols


def _names_security(config: Config) -> bool:
    """Whether TLS or SASL is used anywhere: then the controller's listeners need an explicit protocol too."""
    names = [*(config[CONTROLLER_LISTENER_NAMES] or ()), *(one.partition(":")[0] for one in config[LISTENERS])]
    return any(name.upper() in Protocol.__members__ and name.upper() != "PLAINTEXT" for name in names)


def _endpoints(
    setting: Setting[tuple[str, ...]] | Setting[tuple[str, ...] | None],
    entries: tuple[str, ...],
    protocols: Mapping[str, Protocol],
    problems: list[str],
) -> tuple[Endpoint, ...]:
    found: dict[str, Endpoint] = {}
    for entry in entries:
        match = _ENDPOINT.fullmatch(entry)
        if match is None or int(match[3]) > PORT_MAX:
            problems.append(f"{setting.name}={entry}: must be NAME://HOST:PORT, as in PLAINTEXT://:9092")
            continue
        name = match[1].upper()
        if name in found:
            problems.append(f"{setting.name}={entry}: there is another listener {name}")
        elif name not in protocols:
            problems.append(
                f"{setting.name}={entry}: {LISTENER_SECURITY_PROTOCOL_MAP.name} does not say what {name} speaks; "
                f"add {name}:PLAINTEXT or another protocol"
            )
        else:
            found[name] = Endpoint(name, match[2], int(match[3]), protocols[name])
    return tuple(found.values())


def _shared_ports(bound: tuple[Endpoint, ...]) -> Iterable[str]:
    by_port = defaultdict(list)
    for one in bound:
        by_port[one.port].append(one)
    for port, sharing in by_port.items():
        if port and len(sharing) > 1 and sorted(_ip_version(one.host) for one in sharing) != [4, 6]:
            given = ",".join(map(str, sharing))
            yield f"{LISTENERS.name}={given}: only one IPv4 and one IPv6 address may share port {port}"


def _ip_version(host: str) -> int:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).version
    except ValueError:
        return 0


def _wrong_for_roles(config: Config, found: Listeners, controller_names: set[str]) -> Iterable[str]:
    roles, names = config[PROCESS_ROLES], CONTROLLER_LISTENER_NAMES.name
    given = f"{names}={','.join(sorted(controller_names))}"
    if "controller" in roles:
        for missing in sorted(controller_names - {one.name for one in found.controllers}):
            yield f"{given}: {missing} is not among {LISTENERS.name}, where a controller needs it"
    elif found.controllers:
        yield f"{given}: a node that is no controller must not have these among its {LISTENERS.name}"
    elif not controller_names:
        yield f"{names} must name the listener of the controllers: this node is none itself"
    if "broker" not in roles and found.clients:
        extra = ", ".join(str(one) for one in found.clients)
        yield f"{LISTENERS.name}: {extra} is not among {names}, and this node is no broker"


def _wrong_for_brokers(config: Config, found: Listeners) -> Iterable[str]:
    for_clients = {one.name for one in found.advertised}
    where = ADVERTISED_LISTENERS if config[ADVERTISED_LISTENERS] else LISTENERS
    if not for_clients:
        yield f"{where.name}: none is left for clients; all are among {CONTROLLER_LISTENER_NAMES.name}"
        return
    for name in sorted(for_clients - {one.name for one in found.clients}):
        yield f"{ADVERTISED_LISTENERS.name}: {name} is not among {LISTENERS.name}"
    for one in found.advertised:
        if one.host == ANYWHERE:
            yield (
                f"{where.name}={one}: no client can connect to {ANYWHERE}; "
                f"set {ADVERTISED_LISTENERS.name} to the address that clients use"
            )
    if config.is_set(INTER_BROKER_LISTENER_NAME) and config.is_set(SECURITY_INTER_BROKER_PROTOCOL):
        yield f"set {INTER_BROKER_LISTENER_NAME.name} or {SECURITY_INTER_BROKER_PROTOCOL.name}, not both"
    elif found.between_brokers not in for_clients:
        yield (
            f"{INTER_BROKER_LISTENER_NAME.name}={found.between_brokers}: "
            f"must be one of the listeners that are advertised: {', '.join(sorted(for_clients))}"
        )
