"""Every declaration of ottla.wire against the JSON definitions in Kafka's jars: nothing missing, nothing extra.

Both sides are turned into the same plain facts, version by version, by code that shares nothing: the fields in the
order in which they travel, then what becomes of the fields the version does not carry.
"""

import json
import pkgutil
import re
import subprocess
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import ottla.wire
from ottla.wire.api import ApiKey, request_class, response_class
from ottla.wire.errors import Error
from ottla.wire.schema import Message, message_of, structure_of
from ottla.wire.shapes import Field, Structure

JARS = (
    "kafka-clients",
    "kafka-metadata",
    "kafka-group-coordinator",
    "kafka-transaction-coordinator",
    "kafka-storage",
    "kafka-raft",
    "kafka-share-coordinator",
)
ZERO = {"string": "", "bytes": b"", "uuid": bytes(16), "bool": False, "float64": 0.0}
BLANK = "a structure of defaults"
Facts = dict[str, Any]


# -- what the jars say


def definitions(jars: Path) -> Iterator[dict[str, Any]]:
    for name in JARS:
        (path,) = jars.glob(f"{name}-[0-9]*.jar")
        with zipfile.ZipFile(path) as jar:
            for entry in jar.namelist():
                if re.fullmatch(r"(common/)?(message|metadata)/\w+\.json", entry):
                    text = re.sub(r"(^|\s)//.*$", "", jar.read(entry).decode(), flags=re.MULTILINE)
                    yield json.loads(text)


def in_range(versions: str | None, version: int) -> bool:
    if versions is None or versions == "none":
        return False
    first, _, last = versions.partition("-")
    if first.endswith("+"):
        return version >= int(first[:-1])
    return int(first) <= version <= int(last or first)


def snake(name: str) -> str:
    name = name.replace("KRaft", "Kraft")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[:1].lower() + name[1:]).lower()


def expected_message(definition: dict[str, Any]) -> Facts:
    of_api = definition["type"] in ("request", "response")
    first, _, last = definition["validVersions"].partition("-")
    versions = range(int(first), int(last or first) + 1)
    flexible = [v for v in versions if in_range(definition["flexibleVersions"], v)]
    shared = {s["name"]: s["fields"] for s in definition.get("commonStructs", [])}
    return {
        "versions": versions,
        "api_key": definition.get("apiKey") if of_api else None,
        "record_type": None if of_api else definition.get("apiKey"),
        "listeners": tuple(definition.get("listeners", ())),
        "unstable": bool(definition.get("latestVersionUnstable")),
        "layout": {
            v: (v in flexible, list(expected_fields(definition["fields"], shared, v, v in flexible, "")))
            for v in versions
        },
    }


def expected_fields(
    fields: list[dict[str, Any]], shared: dict[str, Any], version: int, flexible: bool, path: str
) -> Iterator[tuple[Any, ...]]:
    for f in fields:
        name = f"{path}{snake(f['name'])}"
        element = f["type"].removeprefix("[]")
        nested = f.get("fields") or shared.get(element)
        # A field with taggedVersions alone exists where it is tagged.
        if not in_range(f.get("versions", f.get("taggedVersions")), version):
            yield name, "absent", expected_default(f, version), str(f.get("ignorable", False)).lower() == "true"
            continue
        yield (
            name,
            f["type"].replace(element, "struct") if nested else f["type"],
            in_range(f.get("nullableVersions"), version),
            f["tag"] if in_range(f.get("taggedVersions"), version) else None,
            expected_default(f, version),
            flexible and f.get("flexibleVersions") != "none",
        )
        if nested:
            yield from expected_fields(nested, shared, version, flexible, f"{name}.")


def expected_default(f: dict[str, Any], version: int) -> object:
    """JSON's null is no default at all to Kafka's generator: only the string "null" is one."""
    kind, value = f["type"], f.get("default")
    if value == "null":
        return None
    if kind.startswith("[]"):
        return []
    if kind == "records":
        return None if in_range(f.get("nullableVersions"), version) else b""
    if kind[0].isupper():
        return BLANK
    if value is None or value == "":
        return ZERO.get(kind, 0)
    if kind == "bool":
        return str(value).lower() == "true"
    return int(str(value), 0) if "int" in kind else value


# -- what we declare


def declared_classes() -> dict[str, type]:
    found: dict[str, type] = {}
    for module_info in pkgutil.walk_packages(ottla.wire.__path__, "ottla.wire."):
        module = import_module(module_info.name)
        for cls in vars(module).values():
            if isinstance(cls, type) and "__message__" in vars(cls) and cls.__module__ == module.__name__:
                assert cls.__name__ not in found, f"{cls.__name__} is declared twice"
                found[cls.__name__] = cls
    return found


def actual_message(cls: type) -> Facts:
    message = message_of(cls)
    return {
        "versions": message.versions,
        "api_key": message.api_key,
        "record_type": message.record_type,
        "listeners": message.listeners,
        "unstable": message.unstable,
        "layout": {
            v: (message.is_flexible(v), list(actual_fields(message, structure_of(cls), v, "")))
            for v in message.versions
        },
    }


def actual_fields(message: Message, structure: Structure, version: int, path: str) -> Iterator[tuple[Any, ...]]:
    for f in structure.fields:
        name = f"{path}{f.name}"
        if not f.in_version(version):
            yield name, "absent", actual_default(f), f.ignorable
            continue
        element = f.primitive.name if f.primitive else "struct"
        yield (
            name,
            f"[]{element}" if f.array else element,
            f.nullable_in(version),
            f.tag,
            actual_default(f),
            message.is_flexible(version) and f.options.compact,
        )
        if f.structure:
            yield from actual_fields(message, f.structure, version, f"{name}.")


def actual_default(f: Field) -> object:
    value = f.default()
    unset = value is None and not f.options.nullable  # See schema.field: a tagged structure that is not sent.
    return BLANK if unset or (f.structure and not f.array and value is not None) else value


# -- the comparison


def differences(definition: dict[str, Any], cls: type) -> list[str]:
    expected, actual = expected_message(definition), actual_message(cls)
    found = [
        f"{definition['name']}: {fact} is {actual[fact]}, Kafka says {expected[fact]}"
        for fact in ("versions", "api_key", "record_type", "listeners", "unstable")
        if expected[fact] != actual[fact]
    ]
    if found:
        return found
    for version, (flexible, layout) in expected["layout"].items():
        ours_flexible, ours = actual["layout"][version]
        # A field that no version carries cannot be declared.
        alive = {entry[0] for _, entries in expected["layout"].values() for entry in entries if entry[1] != "absent"}
        layout = [entry for entry in layout if entry[0] in alive]
        if flexible != ours_flexible:
            found.append(f"{definition['name']} v{version}: flexible={ours_flexible}, Kafka says {flexible}")
        found += [f"{definition['name']} v{version}: missing {entry}" for entry in layout if entry not in ours]
        found += [f"{definition['name']} v{version}: extra {entry}" for entry in ours if entry not in layout]
        if not found and layout != ours:
            found.append(f"{definition['name']} v{version}: the same fields in another order")
    return found


@pytest.fixture(scope="module")
def kafka_definitions(kafka_jars: Path) -> dict[str, dict[str, Any]]:
    return {definition["name"]: definition for definition in definitions(kafka_jars)}


def test_every_message_of_the_jars_is_declared_and_no_other(kafka_definitions: dict[str, Any]) -> None:
    living = {name for name, definition in kafka_definitions.items() if definition["validVersions"] != "none"}
    assert len(living) > 250
    assert set(declared_classes()) == living


def test_every_field_in_every_version_is_as_the_jars_say(kafka_definitions: dict[str, Any]) -> None:
    found = [line for name, cls in declared_classes().items() for line in differences(kafka_definitions[name], cls)]
    assert found == []


def test_every_api_key_with_a_version_left_leads_to_its_messages(kafka_definitions: dict[str, Any]) -> None:
    requests = {d["apiKey"]: name for name, d in kafka_definitions.items() if d["type"] == "request"}
    living = {key: name for key, name in requests.items() if kafka_definitions[name]["validVersions"] != "none"}
    assert {int(key) for key in ApiKey} == set(living)
    assert {key: request_class(key).__name__ for key in living} == living
    assert {key: response_class(key).__name__.replace("Response", "Request") for key in living} == living


@pytest.mark.parametrize(
    ("path", "change"),
    [
        (["fields", 1], {"type": "int32"}),
        (["fields", 1], {"versions": "4+"}),
        (["fields", 0], {"nullableVersions": "5+"}),
        (["fields", 0], {"default": ""}),
        (["fields", 2], {"tag": 0, "taggedVersions": "9+"}),
        (["fields", 3, "fields", 0], {"ignorable": False}),
        (["fields", 3, "fields", 0], {"name": "Topic"}),
        (["fields", 3, "fields", 2, "fields", 1], {"type": "bytes"}),
        ([], {"flexibleVersions": "10+"}),
        ([], {"validVersions": "3-14"}),
        ([], {"apiKey": 1}),
        ([], {"latestVersionUnstable": True}),
        ([], {"listeners": ["controller"]}),
    ],
)
def test_the_comparison_sees_a_single_changed_fact(
    kafka_definitions: dict[str, Any], path: list[Any], change: dict[str, Any]
) -> None:
    definition = json.loads(json.dumps(kafka_definitions["ProduceRequest"]))
    cls = declared_classes()["ProduceRequest"]
    assert differences(definition, cls) == []
    target = definition
    for step in path:
        target = target[step]
    target.update(change)
    assert differences(definition, cls) != []


def test_error_codes_names_and_retriability_are_kafkas(kafka_jars: Path) -> None:
    """Kafka prints its own table, for its documentation."""
    command = ["java", "-cp", f"{kafka_jars}/*", "org.apache.kafka.common.protocol.Errors"]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"<td>([A-Z_]+)</td>\s*<td>(-?\d+)</td>\s*<td>(True|False)</td>", table)
    assert {(name, int(code), retriable == "True") for name, code, retriable in rows} == {
        (error.name, error.value, error.retriable) for error in Error
    }
