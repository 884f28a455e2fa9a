"""Generates the decoder of one message in one version.

Rule 1: consecutive fields of fixed width are read by one `Struct`, together with the length (or, in flexible versions,
        the first byte of the length) of the field after them.
Rule 2: nothing is sliced, created or looped over before its length or count was compared with the bytes left. Any other
        read past the end raises IndexError or struct.error, which the caller turns into `Malformed`.
Rule 3: an element of an array takes at least one byte, so a count cannot exceed the input.
Rule 4: a stepwise decoder reads the same messages. It yields after some hundred elements, so that a request of a
        hundred thousand elements does not block, and it refuses a message whose objects would take more memory than it
        was given: three bytes of input may become a hundred bytes of Python objects.
"""

from struct import Struct
from typing import Any

from ottla.wire import runtime
from ottla.wire.rows import RowReader
from ottla.wire.schema import Message
from ottla.wire.shapes import BadDeclaration, Field, Structure
from ottla.wire.source import CodeWriter, Compiled
from ottla.wire.types import STRING_MAX, Primitive

_ELEMENTS_PER_STEP = 128
_NUMBERS_PER_STEP = 4096
_ROWS_MAX = 2048
"""Longer arrays are read one by one in a stepwise decoder, because reading rows is a single step."""
_OBJECT_BYTES = 16  # Overhead of the garbage collector per object.
_NUMBER_BYTES = 32
_LIST_BYTES = 72
_POINTER_BYTES = 8
# Every element of a request causes an element in the response, which takes memory too.
_ANSWER_BYTES = 128
_WHOLE_ANSWER_BYTES = 256  # For an element that is just a number or a string, while the response has a structure.


def compile_decoder(message: Message, structure: Structure, version: int) -> Compiled:
    """A function (view, position) that returns the message and the position after it."""
    writer = _DecoderWriter(message, version, stepwise=False)
    return writer.compile(structure)


def compile_stepwise_decoder(message: Message, structure: Structure, version: int) -> Compiled:
    """A generator function (view, position, bytes of memory) that returns the message and the position after it."""
    writer = _DecoderWriter(message, version, stepwise=True)
    return writer.compile(structure)


class _DecoderWriter:
    def __init__(self, message: Message, version: int, *, stepwise: bool) -> None:
        self._version = version
        self._flexible = message.is_flexible(version)
        self._stepwise = stepwise
        kind, arguments = ("stepwise decoder", "b, p, left") if stepwise else ("decoder", "b, p")
        self._source = CodeWriter(f"{message.name} v{version} {kind}", arguments)
        self._run: list[tuple[str, str]] = []  # Letter for `struct`, target.
        self._run_labels: list[str] = []

    def compile(self, structure: Structure) -> Compiled:
        self._add("end = len(b)", "")
        if self._stepwise:
            self._add("k = 0", "")
        target = self._structure(structure, "")
        self._flush()
        self._add(f"return {target}, p", "")
        if self._stepwise:
            self._add("yield", "")  # Never reached; makes this a generator even if the message has no array.
        return self._source.compile()

    # -- steps

    def _spend(self, weight: str, label: str) -> None:
        """Emit code that deducts `weight` from the memory left."""
        self._add(f"left -= {weight}", label)
        with self._source.block("if left < 0", label):
            self._add(f"{self._runtime('takes_too_much')}()", label)

    def _pause(self, elements: str, label: str) -> None:
        """Emit code that counts elements and yields after enough of them."""
        self._add(f"k += {elements}", label)
        with self._source.block(f"if k >= {_ELEMENTS_PER_STEP}", label):
            self._add("k = 0", label)
            self._add("yield", label)

    def _add(self, line: str, label: str) -> None:
        self._source.add(line, label)

    def _runtime(self, name: str) -> str:
        return self._source.constant(name, getattr(runtime, name), name)

    # -- runs of fixed width

    def _read(self, code: str, target: str, label: str) -> None:
        self._run.append((code, target))
        self._run_labels.append(label)

    def _flush(self) -> None:
        if not self._run:
            return
        codes = "".join(code for code, _ in self._run)
        targets = ", ".join(target for _, target in self._run)
        label = ", ".join(dict.fromkeys(self._run_labels))
        if codes == "B":
            self._add(f"{targets} = b[p]", label)
            self._add("p += 1", label)
        else:
            layout = Struct(">" + codes)
            unpack = self._source.constant("unpack", layout.unpack_from, codes)
            self._add(f"{targets}{',' if len(self._run) == 1 else ''} = {unpack}(b, p)", label)
            self._add(f"p += {layout.size}", label)
        self._run.clear()
        self._run_labels.clear()

    def _uvarint(self, target: str, label: str, often_long: bool = False) -> None:
        """`often_long`: also read a second byte in line, without a call."""
        self._read("B", target, label)
        self._flush()
        tail = f"{target}, p = {self._runtime('uvarint_tail')}(b, p, {target})"
        with self._source.block(f"if {target} > 127", label):
            if not often_long:
                self._add(tail, label)
                return
            self._add("second = b[p]", label)
            with self._source.block("if second < 128", label):
                self._add(f"{target} += (second - 1) << 7", label)
                self._add("p += 1", label)
            with self._source.block("else", label):
                self._add(tail, label)

    # -- structures

    def _structure(self, structure: Structure, path: str) -> str:
        """Emit code that creates an instance; returns the variable that holds it."""
        o = self._source.variable("o")
        cls = self._source.constant(structure.cls.__name__, structure.cls)
        new = self._source.constant("new", object.__new__)
        self._add(f"{o} = {new}({cls})", path)
        tagged = []
        for f in structure.fields:
            label = f"{path}.{f.name}" if path else f.name
            if not f.in_version(self._version):
                self._default(f, f"{o}.{f.name}", label)
            elif f.tag is not None:
                self._default(f, f"{o}.{f.name}", label)
                tagged.append((f, label))
            else:
                self._field(f, f"{o}.{f.name}", label)
        if self._flexible:
            self._tags(tagged, o, path)
        return o

    def _default(self, f: Field, target: str, label: str) -> None:
        value = f.default()
        if isinstance(value, list):
            self._add(f"{target} = []", label)
        elif f.structure is not None and value is not None:
            blank = self._source.constant(f"blank_{f.structure.cls.__name__}", f.structure.blank, id(f.structure))
            self._add(f"{target} = {blank}()", label)
        elif value is None or isinstance(value, (bool, int, float)):
            self._add(f"{target} = {value!r}", label)
        else:
            self._add(f"{target} = {self._source.constant('default', value, repr(value))}", label)

    def _tags(self, tagged: list[tuple[Field, str]], o: str, path: str) -> None:
        label = f"{path}.<tagged fields>" if path else "<tagged fields>"
        self._read("B", "t", label)
        self._flush()
        with self._source.block("if t", label):
            if tagged:
                self._known_tags(tagged, o, label)
            else:
                self._add(f"p = {self._runtime('skip_tags')}(b, p, t)", label)

    def _known_tags(self, tagged: list[tuple[Field, str]], o: str, label: str) -> None:
        self._add(f"t, p = {self._runtime('tag_count')}(b, p, t)", label)
        tag, size, start = (self._source.variable(hint) for hint in ("tag", "size", "start"))
        with self._source.block("for _ in range(t)", label):
            self._add(f"{tag}, {size}, {start} = {self._runtime('tag_head')}(b, p)", label)
            self._add(f"p = {start}", label)
            for f, field_label in tagged:
                with self._source.block(f"if {tag} == {f.tag}", field_label):
                    self._field(f, f"{o}.{f.name}", field_label)
                    self._flush()
                    with self._source.block(f"if p != {start} + {size}", field_label):
                        self._add(f"{self._runtime('bad_tag_size')}({size}, p - {start})", field_label)
            self._add(f"p = {start} + {size}", label)

    # -- fields

    def _field(self, f: Field, target: str, label: str) -> None:
        nullable = f.nullable_in(self._version)
        compact = self._flexible and f.options.compact
        if f.array:
            self._array(f, target, nullable, compact, label)
        elif f.structure is not None:
            self._nested(f, target, nullable, label)
        elif f.primitive is not None and f.primitive.code:
            self._read(f.primitive.code, target, label)
        elif f.primitive is not None:
            self._sized(f.primitive, target, nullable, compact, label)

    def _nested(self, f: Field, target: str, nullable: bool, label: str) -> None:
        assert f.structure is not None
        if not nullable:
            self._add(f"{target} = {self._structure(f.structure, label)}", label)
            return
        if f.tag is None:
            self._read("b", "n", label)
            self._flush()
            present = "n >= 0"
        else:  # Kafka marks null by a varint here, not by a byte.
            self._uvarint("n", label)
            present = "n"
        self._add(f"{target} = None", label)
        with self._source.block(f"if {present}", label):
            self._add(f"{target} = {self._structure(f.structure, label)}", label)
            self._flush()

    def _sized(self, primitive: Primitive, target: str, nullable: bool, compact: bool, label: str) -> None:
        """A string, bytes or records: a length, then that many bytes."""
        text = primitive.name == "string"
        if compact:
            self._uvarint("n", label, often_long=primitive.name == "records")
            self._add("q = p + n - 1", label)
        else:
            self._read("h" if text else "i", "n", label)
            self._flush()
            self._add("q = p + n", label)
        check = "if not p <= q <= end"
        if text and compact:
            check += f" or n > {STRING_MAX + 1}"
        if nullable:
            self._add(f"{target} = None", label)
            with self._source.block("if n" if compact else "if n != -1", label):
                self._slice(primitive, target, check, compact, label)
        else:
            self._slice(primitive, target, check, compact, label)

    def _slice(self, primitive: Primitive, target: str, check: str, compact: bool, label: str) -> None:
        with self._source.block(check, label):
            self._add(f"{self._runtime('bad_length')}(n{' - 1' if compact else ''}, end - p)", label)
        # Member ids, metadata and reasons are mostly empty, and three calls cost more than a comparison.
        value = {
            "string": "b[p:q].tobytes().decode() if q > p else ''",
            "bytes": "b[p:q].tobytes()",
            "records": "b[p:q]",
        }
        if self._stepwise and primitive.name == "bytes":
            self._spend("q - p", label)
        self._add(f"{target} = {value[primitive.name]}", label)
        if self._stepwise and primitive.name == "string":
            self._spend(f"{target}.__sizeof__()", label)  # One character of four bytes makes all of them four.
        self._add("p = q", label)

    def _array(self, f: Field, target: str, nullable: bool, compact: bool, label: str) -> None:
        if compact:
            self._uvarint("n", label)
            self._add("n -= 1", label)
        else:
            self._read("i", "n", label)
            self._flush()
        if nullable:
            with self._source.block("if n == -1", label):
                self._add(f"{target} = None", label)
            with self._source.block("else", label):
                self._elements(f, target, compact, label)
        else:
            self._elements(f, target, compact, label)

    def _elements(self, f: Field, target: str, compact: bool, label: str) -> None:
        smallest = self._smallest_element(f, compact)
        if smallest == 0:
            raise BadDeclaration(f"{label}: an element without a field in version {self._version} takes no bytes")
        with self._source.block(f"if not 0 <= n * {smallest} <= end - p", label):
            self._add(f"{self._runtime('bad_count')}(n, end - p)", label)
        if f.primitive is not None and f.primitive.code:
            code = f.primitive.code
            reader: Any = runtime.read_uuids if f.primitive.name == "uuid" else runtime.number_reader(code)
            self._numbers(self._source.constant("read_array", reader), f.primitive.size, target, label)
            return
        if self._stepwise:
            self._spend(f"n * {self._weight(f)}", label)
        if f.in_rows and f.structure is not None and RowReader.can_read(f.structure):
            reader = RowReader(f.structure, self._version, flexible=self._flexible)
            read = f"{self._source.constant('read_rows', reader)}(b, p, n)"
            if self._stepwise:
                read += f" if n <= {_ROWS_MAX} else None"
            self._add(f"rows = {target} = {read}", label)
            with self._source.block("if rows is not None", label):
                self._add(f"p += n * {smallest}", label)
            with self._source.block("else", label):
                self._one_by_one(f, target, compact, label)
        else:
            self._one_by_one(f, target, compact, label)

    def _numbers(self, read: str, size: int, target: str, label: str) -> None:
        """Emit code for an array of values of one width."""
        if not self._stepwise:
            self._add(f"{target} = {read}(b, p, n)", label)
            self._add(f"p += n * {size}", label)
            return
        self._spend(f"n * {_NUMBER_BYTES + _POINTER_BYTES + size + _WHOLE_ANSWER_BYTES}", label)
        items = self._source.variable("items")
        self._add(f"{items} = {target} = []", label)
        with self._source.block("while n", label):
            self._add(f"m = min(n, {_NUMBERS_PER_STEP})", label)
            self._add(f"{items} += {read}(b, p, m)", label)
            self._add(f"p += m * {size}", label)
            self._add("n -= m", label)
            self._pause("m >> 5", label)

    def _one_by_one(self, f: Field, target: str, compact: bool, label: str) -> None:
        items = self._source.variable("items")
        self._add(f"{items} = {target} = []", label)
        with self._source.block("for _ in range(n)", label):
            if f.structure is not None:
                element = self._structure(f.structure, f"{label}[]")
                self._flush()
            else:
                assert f.primitive is not None
                element = self._source.variable("e")
                self._sized(f.primitive, element, False, compact, f"{label}[]")
            self._add(f"{items}.append({element})", label)
            if self._stepwise:
                self._pause("1", label)

    # -- memory

    def _weight(self, f: Field) -> int:
        """The memory of an element and its response, without its strings and the elements of its arrays."""
        if f.structure is None:
            return _POINTER_BYTES + _WHOLE_ANSWER_BYTES
        return _POINTER_BYTES + _ANSWER_BYTES + self._structure_weight(f.structure)

    def _structure_weight(self, structure: Structure) -> int:
        total = _OBJECT_BYTES + structure.cls.__basicsize__
        for f in structure.fields:
            if f.array:
                total += _LIST_BYTES
            elif f.structure is not None:
                total += self._structure_weight(f.structure)
            elif f.primitive is not None and f.primitive.code:
                total += _NUMBER_BYTES
            elif f.primitive is not None and f.primitive.name == "records":
                total += 3 * _LIST_BYTES  # A view of the input.
        return total

    # -- smallest sizes

    def _smallest_element(self, f: Field, compact: bool) -> int:
        if f.structure is not None:
            return self._smallest_structure(f.structure)
        assert f.primitive is not None
        return f.primitive.size or self._length_size(f.primitive, compact)

    def _smallest_structure(self, structure: Structure) -> int:
        present = [f for f in structure.fields if f.in_version(self._version) and f.tag is None]
        return sum(self._smallest(f) for f in present) + self._flexible

    def _smallest(self, f: Field) -> int:
        compact = self._flexible and f.options.compact
        if f.array:
            return 1 if compact else 4
        if f.structure is not None:
            return 1 if f.nullable_in(self._version) else self._smallest_structure(f.structure)
        assert f.primitive is not None
        return f.primitive.size or self._length_size(f.primitive, compact)

    @staticmethod
    def _length_size(primitive: Primitive, compact: bool) -> int:
        return 1 if compact else 2 if primitive.name == "string" else 4
