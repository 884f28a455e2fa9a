"""Generates the encoder of one message in one version.

Rule 1: as in the decoder, one `Struct` packs consecutive fields of fixed width and the length after them.
Rule 2: a value that the version cannot carry is refused, unless the field is ignorable or holds its default.
Rule 3: record data is never copied: the encoder returns a list of buffers that contains it unchanged.
Rule 4: values are not checked one by one. A wrong one makes `struct` or an attribute look-up fail; the failing line
        identifies the field.
Rule 5: a stepwise encoder writes the same bytes, and yields after some elements.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct

from ottla.wire import runtime
from ottla.wire.rows import ColumnarArray, Shared
from ottla.wire.schema import Message
from ottla.wire.shapes import Field, Structure
from ottla.wire.source import CodeWriter, Compiled
from ottla.wire.types import Primitive

_ZERO = "x"  # A zero byte, for which `struct` takes no argument.
_ELEMENTS_PER_STEP = 64
_PACKED_KINDS = (ColumnarArray, Shared)


def compile_encoder(message: Message, structure: Structure, version: int) -> Compiled:
    """A function (message) that returns a list of buffers."""
    return _EncoderWriter(message, version, stepwise=False).compile(structure)


def compile_stepwise_encoder(message: Message, structure: Structure, version: int) -> Compiled:
    """A generator function (message, out) that appends buffers to `out`, which may be emptied at every pause."""
    return _EncoderWriter(message, version, stepwise=True).compile(structure)


class _EncoderWriter:
    def __init__(self, message: Message, version: int, *, stepwise: bool) -> None:
        self._version = version
        self._flexible = message.is_flexible(version)
        self._stepwise = stepwise
        self._layout = f"{message.name} v{version}"
        kind, arguments = ("stepwise encoder", "o, out") if stepwise else ("encoder", "o")
        self._source = CodeWriter(f"{self._layout} {kind}", arguments)
        self._run: list[tuple[str, str]] = []  # Letter for `struct`, value.
        self._run_labels: list[str] = []
        self._out = "out"

    def compile(self, structure: Structure) -> Compiled:
        if self._stepwise:
            self._add("k = 0", "")
            self._add("w_out = out.append", "")
            self._structure(structure, "o", "")
            self._flush()
            self._add("return", "")
            self._add("yield", "")  # Never reached; makes this a generator even if the message has no array.
        else:
            with self._buffers("out"):
                self._structure(structure, "o", "")
            self._add("return out", "")
        return self._source.compile()

    def _add(self, line: str, label: str) -> None:
        self._source.add(line, label)

    def _runtime(self, name: str) -> str:
        return self._source.constant(name, getattr(runtime, name), name)

    # -- output

    @contextmanager
    def _buffers(self, name: str) -> Iterator[None]:
        """Inside the block, output goes to a new list of this name."""
        outer, self._out = self._out, name
        self._add(f"{name} = []", "")
        self._add(f"w_{name} = {name}.append", "")
        yield
        self._flush()
        self._out = outer

    def _append(self, value: str, label: str) -> None:
        self._flush()
        self._add(f"w_{self._out}({value})", label)

    def _write(self, code: str, value: str, label: str) -> None:
        self._run.append((code, value))
        self._run_labels.append(label)

    def _packed(self, *more: str) -> str:
        """An expression for the bytes of the run, followed by these one-byte values."""
        run = self._run + [("B", value) for value in more]
        codes = "".join(code for code, _ in run)
        if set(codes) <= {_ZERO}:
            return repr(bytes(len(codes)))
        pack = self._source.constant("pack", Struct(">" + codes).pack, codes)
        return f"{pack}({', '.join(value for code, value in run if code != _ZERO)})"

    def _flush(self) -> None:
        if self._run:
            self._add(f"w_{self._out}({self._packed()})", ", ".join(dict.fromkeys(self._run_labels)))
            self._run.clear()
            self._run_labels.clear()

    def _uvarint(self, value: str, label: str, kind: str = "") -> None:
        """Append the run and a varint. `kind` is the type of the field whose length it is."""
        self._run_labels.append(label)
        label = ", ".join(dict.fromkeys(self._run_labels))
        longer = f"{self._runtime('string_uvarint' if kind == 'string' else 'uvarint')}({value})"
        if self._run:
            one_byte, longer = self._packed(value), f"{self._packed()} + {longer}"
        else:
            one_byte = f"{self._runtime('ONE_BYTE')}[{value}]"
        if kind == "records":  # Their length often takes two bytes.
            longer = f"{self._packed(f'{value} & 127 | 128', f'{value} >> 7')} if {value} < 16384 else {longer}"
        self._add(f"w_{self._out}({one_byte} if {value} < 128 else {longer})", label)
        self._run.clear()
        self._run_labels.clear()

    # -- structures

    def _structure(self, structure: Structure, o: str, path: str) -> None:
        tagged = []
        for f in structure.fields:
            label = f"{path}.{f.name}" if path else f.name
            if not f.in_version(self._version):
                if not f.ignorable:
                    self._refuse_unless_default(f, f"{o}.{f.name}", label)
            elif f.tag is not None:
                tagged.append((f, label))
            else:
                self._field(f, f"{o}.{f.name}", label)
        if tagged:
            self._tags(sorted(tagged, key=lambda pair: pair[0].tag or 0), o, path)
        elif self._flexible:
            self._write(_ZERO, "", f"{path}.<tagged fields>")

    def _refuse_unless_default(self, f: Field, value: str, label: str) -> None:
        with self._source.block(f"if {self._differs(f, value)}", label):
            self._add(f"{self._runtime('not_in_version')}({value})", label)

    def _differs(self, f: Field, value: str) -> str:
        """The condition that the field does not hold its default."""
        default = f.default()
        if default is None and f.structure is not None and not f.options.nullable:
            blank = self._source.constant("blank", f.structure.blank(), id(f.structure))
            return f"{value} is not None and {value} != {blank}"
        if default is None:
            return f"{value} is not None"
        if isinstance(default, (bool, int, float)):
            return f"{value} != {default!r}"
        return f"{value} != {self._source.constant('default', default, f'{type(default).__name__}{default!r}')}"

    def _tags(self, tagged: list[tuple[Field, str]], o: str, path: str) -> None:
        label = f"{path}.<tagged fields>" if path else "<tagged fields>"
        self._flush()
        tags = self._source.variable("tags")
        self._add(f"{tags} = []", label)
        for f, field_label in tagged:
            with self._source.block(f"if {self._differs(f, f'{o}.{f.name}')}", field_label):
                body = self._source.variable("body")
                with self._buffers(body):
                    self._field(f, f"{o}.{f.name}", field_label)
                self._add(f"{body} = b''.join({body})", field_label)
                head = f"{self._runtime('uvarint')}({f.tag}) + {self._runtime('uvarint')}(len({body}))"
                self._add(f"{tags}.append({head} + {body})", field_label)
        with self._source.block(f"if {tags}", label):
            self._append(f"{self._runtime('uvarint')}(len({tags}))", label)
            self._add(f"{self._out}.extend({tags})", label)
        with self._source.block("else", label):
            self._append(repr(b"\0"), label)

    # -- fields

    def _field(self, f: Field, value: str, label: str) -> None:
        nullable = f.nullable_in(self._version)
        compact = self._flexible and f.options.compact
        if f.array:
            self._array(f, value, nullable, compact, label)
        elif f.structure is not None:
            self._nested(f, value, nullable, label)
        elif f.primitive is not None and f.primitive.code:
            self._fixed(f.primitive, value, label)
        elif f.primitive is not None:
            self._sized(f.primitive, value, nullable, compact, label)

    def _fixed(self, primitive: Primitive, value: str, label: str) -> None:
        if primitive.name == "uuid":  # `struct` would cut or pad it silently.
            with self._source.block(f"if len({value}) != 16", label):
                self._add(f"{self._runtime('bad_uuid')}({value})", label)
        # As a number, so that None is refused: `?` takes it for False.
        self._write("B" if primitive.name == "bool" else primitive.code, value, label)

    def _nested(self, f: Field, value: str, nullable: bool, label: str) -> None:
        assert f.structure is not None
        o = self._source.variable("o")
        self._add(f"{o} = {value}", label)
        if not nullable:
            self._structure(f.structure, o, label)
            return
        self._flush()
        null, present = ("b'\\xff'", "b'\\1'") if f.tag is None else ("b'\\0'", "b'\\1'")
        with self._source.block(f"if {o} is None", label):
            self._append(null, label)
        with self._source.block("else", label):
            self._append(present, label)
            self._structure(f.structure, o, label)
            self._flush()

    def _sized(self, primitive: Primitive, value: str, nullable: bool, compact: bool, label: str) -> None:
        text = primitive.name == "string"
        if nullable:
            self._add(f"v = {value}", label)
            with self._source.block("if v is None", label):
                self._add(f"v, n = b'', {0 if compact else -1}", label)
            with self._source.block("else", label):
                if text:
                    self._add("v = v.encode()", label)
                self._add(f"n = len(v){' + 1' if compact else ''}", label)
        else:
            self._add(f"v = {value}{'.encode()' if text else ''}", label)
            self._add(f"n = len(v){' + 1' if compact else ''}", label)
        if compact:
            self._uvarint("n", label, primitive.name)
        else:
            self._write("h" if text else "i", "n", label)
        self._append("v", label)

    def _array(self, f: Field, value: str, nullable: bool, compact: bool, label: str) -> None:
        items = self._source.variable("items")
        self._add(f"{items} = {value}", label)
        if nullable:
            with self._source.block(f"if {items} is None", label):
                self._add(f"{items}, n = (), {0 if compact else -1}", label)
            with self._source.block("else", label):
                self._add(f"n = len({items}){' + 1' if compact else ''}", label)
        else:
            self._add(f"n = len({items}){' + 1' if compact else ''}", label)
        if compact:
            self._uvarint("n", label)
        else:
            self._write("i", "n", label)
            self._flush()
        if f.primitive is not None and f.primitive.code:
            uuids = f.primitive.name == "uuid"
            write = runtime.write_uuids if uuids else runtime.number_writer(f.primitive.code)
            self._append(f"{self._source.constant('write_array', write)}({items})", label)
            return
        if f.in_rows and f.structure is not None:
            self._packed_array(f, items, compact, label)
        else:
            self._elements(f, items, compact, label)

    def _packed_array(self, f: Field, items: str, compact: bool, label: str) -> None:
        """A `Packed` array keeps its encoded bytes, because it may occur many times, and in many responses."""
        body, kept = self._source.variable("body"), self._source.variable("kept")
        key = repr(f"{self._layout} {label}")
        self._flush()
        kinds = self._source.constant("packed_kinds", _PACKED_KINDS)
        self._add(f"{kept} = {items}.packed if type({items}) in {kinds} else None", label)
        self._add(f"{body} = {kept}.get({key}) if {kept} is not None else None", label)
        with self._source.block(f"if {body} is None", label):
            with self._buffers(body):
                self._elements(f, items, compact, label)
            self._add(f"{body} = b''.join({body})", label)
            with self._source.block(f"if {kept} is not None", label):
                self._add(f"{kept}[{key}] = {body}", label)
        self._append(body, label)

    def _elements(self, f: Field, items: str, compact: bool, label: str) -> None:
        element = self._source.variable("e")
        with self._source.block(f"for {element} in {items}", label):
            if f.structure is not None:
                self._structure(f.structure, element, f"{label}[]")
            else:
                assert f.primitive is not None
                self._sized(f.primitive, element, False, compact, f"{label}[]")
            self._flush()
            if self._stepwise:
                self._add("k += 1", label)
                with self._source.block(f"if k >= {_ELEMENTS_PER_STEP}", label):
                    self._add("k = 0", label)
                    self._add("yield", label)
