"""The notation: what a declared class can do, and which declarations are refused."""

import copy
import pickle
from typing import Any

import pytest

from ottla.wire.schema import BadDeclaration, Message, field, message, message_of, struct, structure_of
from ottla.wire.types import Bool, Bytes, Int8, Int32, Records, String, Uuid
from ottla.wire.uuids import uuid_from_text, uuid_to_text


@struct
class Inner:
    number: Int32 = field(default=-1)


@message(api_key=3, versions=(2, 5), flexible=4, listeners=("broker",), unstable=True)
class SampleRequest:
    """A message for these tests."""

    name: String
    password: String = field(default="", secret=True)
    inner: Inner | None = field(since=4, tag=0, default=None, nullable=False)
    many: list[Inner] = field(since=3, until=4, default=[])


def test_a_message_is_built_by_the_names_of_its_fields() -> None:
    sample = SampleRequest(name="n", many=[Inner()])
    assert (sample.name, sample.password, sample.inner, sample.many) == ("n", "", None, [Inner(number=-1)])


def test_a_field_without_default_must_be_given() -> None:
    with pytest.raises(TypeError, match="name"):
        SampleRequest()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="nmae"):
        SampleRequest(nmae="n")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        SampleRequest("n")  # type: ignore[call-arg]


def test_a_message_has_no_room_for_a_field_nobody_declared() -> None:
    with pytest.raises(AttributeError):
        SampleRequest(name="n").nmae = 1  # type: ignore[attr-defined]


def test_messages_are_equal_by_class_and_fields() -> None:
    assert SampleRequest(name="n") == SampleRequest(name="n")
    assert SampleRequest(name="n") != SampleRequest(name="m")
    assert SampleRequest(name="n") != "n"

    @struct
    class Other:
        number: Int32 = field(default=-1)

    assert Inner() != Other()
    with pytest.raises(TypeError, match="unhashable"):
        hash(Inner())


def test_repr_shows_all_but_secrets() -> None:
    shown = repr(SampleRequest(name="n", password="hunter2"))
    assert shown == "SampleRequest(name='n', password=<secret>, inner=None, many=[])"


def test_messages_can_be_copied_and_pickled() -> None:
    sample = SampleRequest(name="n", many=[Inner(number=2)])
    clone = copy.deepcopy(sample)
    assert clone == sample
    assert clone.many is not sample.many
    assert pickle.loads(pickle.dumps(sample)) == sample


def test_the_facts_of_a_message_can_be_read() -> None:
    assert message_of(SampleRequest) == Message(
        "SampleRequest", range(2, 6), flexible=4, api_key=3, record_type=None, listeners=("broker",), unstable=True
    )
    assert [message_of(SampleRequest).is_flexible(v) for v in (3, 4, 5)] == [False, True, True]
    assert [f.name for f in structure_of(SampleRequest).fields] == ["name", "password", "inner", "many"]
    with pytest.raises(TypeError, match="not declared with @message"):
        message_of(Inner)


def test_a_blank_holds_every_default() -> None:
    assert structure_of(SampleRequest).blank() == SampleRequest(name="")


def test_without_a_default_a_field_has_the_zero_of_its_type() -> None:
    """Kafka's zeros: a nullable field starts empty, not null, except records."""
    zeros = {Int32: 0, Bool: False, String | None: "", list[Int32] | None: [], Uuid: bytes(16), Records: b""}
    for annotation, zero in {**zeros, Records | None: None, Inner | None: Inner()}.items():
        assert structure_of(declare(annotation)).blank().it == zero


def declare(annotation: Any, options: Any = None, **facts: Any) -> type:
    """A message with one field of this type and these options."""
    namespace: dict[str, Any] = {"__annotations__": {"it": annotation}, "__doc__": "One field."}
    if options is not None:
        namespace["it"] = options
    return message(**{"versions": (1, 5), "flexible": 3, **facts})(type("One", (), namespace))


@pytest.mark.parametrize(
    ("annotation", "options", "says"),
    [
        (int, None, "neither a type of ottla.wire.types nor a class made by @struct"),
        (list[int], None, "neither a type"),
        (list[String | None], None, "elements of arrays cannot be nullable"),
        (Int32 | String, None, "more than one type beside None"),
        (Int32, 5, r"write field\(default=5\)"),
        (Int32, field(since=4, until=3), "until=3 is before since=4"),
        (Int32, field(since=6), "since=6 is past the message's last version 5"),
        (Int32, field(until=0), "until=0 is before the message's first version 1"),
        (Int32, field(tag=0, default=0), "flexible versions only: since=3"),
        (Int32, field(since=2, tag=0, default=0), "flexible versions only: since=3"),
        (Int32, field(since=3, tag=1, default=0), r"tags must be 0, 1, 2... without gap or repetition, not \[1\]"),
        (Int32, field(default="5"), "default='5' is no int32"),
        (Bool, field(default=0), "default=0 is no bool"),
        (Int8, field(default=True), "default=True is no int8"),
        (String, field(default=None), "default=None needs a type that ends in"),
        (list[Int32], field(default=[1]), r"the default of an array is \[\] or None"),
        (Inner, field(default=Inner()), "the default of a structure is None or left out"),
        (String, field(nullable_since=2), "nullable_since needs a type that ends in"),
        (Inner | None, field(nullable=False, default=None), "nullable=False is for tagged structures"),
        (String | None, field(since=3, tag=0, nullable=False, default=None), "nullable=False is for tagged structures"),
    ],
)
def test_a_field_that_contradicts_itself_is_refused(annotation: Any, options: Any, says: str) -> None:
    with pytest.raises(BadDeclaration, match=says) as raised:
        declare(annotation, options)
    assert "One" in str(raised.value)


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"versions": (3, 2)}, "versions 3 to 2 are no range"),
        ({"versions": (-1, 2)}, "versions -1 to 2 are no range"),
        ({"flexible": 6}, "flexible=6 is past its last version 5"),
        ({"api_key": 1}, "is named ...Request or ...Response"),
    ],
)
def test_a_message_that_contradicts_itself_is_refused(facts: dict[str, Any], says: str) -> None:
    with pytest.raises(BadDeclaration, match=says):
        declare(Int32, **facts)


def test_a_message_says_what_it_is_for() -> None:
    with pytest.raises(BadDeclaration, match="needs a sentence"):

        @message(versions=(0, 0))
        class Silent:
            number: Int32


def test_checks_reach_fields_of_nested_structures() -> None:
    @struct
    class Late:
        number: Int32 = field(since=9, default=0)

    with pytest.raises(BadDeclaration, match=r"One\.it\.number: since=9"):
        declare(list[Late])


def test_valid_declarations_of_every_shape_pass() -> None:
    for annotation in (Int32, String | None, list[Uuid] | None, list[Inner], Inner | None, Bytes, Records | None):
        assert structure_of(declare(annotation)).fields[0].name == "it"


def test_a_version_in_which_an_element_has_no_field_is_refused_when_first_used() -> None:
    """An element of no bytes would let a count exceed the input."""

    @struct
    class Empty:
        number: Int32 = field(since=2, default=0)

    from ottla.wire.codec import decode

    declared = declare(list[Empty], flexible=None)
    assert decode(declared, 2, bytes(4)) == declared(it=[])
    with pytest.raises(BadDeclaration, match="takes no bytes"):
        decode(declared, 1, bytes(4))


def test_ids_as_text_are_kafkas() -> None:
    """The example is a cluster id as Kafka's storage tool prints it."""
    text = "4L6g3nShT-eMCtK--X86sw"
    assert uuid_to_text(uuid_from_text(text)) == text
    assert len(uuid_from_text(text)) == 16
    assert uuid_to_text(bytes(16)) == "AAAAAAAAAAAAAAAAAAAAAA"


@pytest.mark.parametrize("text", ["", "short", "4L6g3nShT-eMCtK--X86s!", "4L6g3nShT-eMCtK--X86sx", "A" * 23, "é" * 22])
def test_text_that_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an id"):
        uuid_from_text(text)
