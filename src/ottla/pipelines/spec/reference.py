"""The documentation's tables of keys, made from the declarations."""

from collections.abc import Iterator
from typing import Final

from ottla.pipelines.spec import keys
from ottla.pipelines.spec.keys import TableForm, TableKey
from ottla.pipelines.spec.sinks import sink_forms, sink_kinds

_STEP_KEYS: Final = ("name", "input", "watermark")
_NO_DEFAULT: Final = (None, "", ())


def reference_tables() -> str:
    return "\n".join(_lines())


def _sections() -> Iterator[tuple[str, tuple[TableForm, ...]]]:
    yield "The pipeline", (keys.PIPELINE,)
    yield "`[source.NAME]`", keys.SOURCES
    yield "`[[step]]`", keys.STEPS
    yield "`watermark`", (keys.WATERMARK,)
    yield "`[sink.NAME]`", sink_forms()
    yield "`[errors]`", (keys.ERRORS,)


def _lines() -> Iterator[str]:
    epoch_docs = {kind.form.title: kind.epoch_doc for kind in sink_kinds()}
    for title, forms in _sections():
        yield f"### {title}\n"
        for form in forms:
            shared = form in keys.STEPS and form is not keys.MARK_ONLY
            if len(forms) > 1:
                yield f"{form.title[0].upper()}{form.title[1:]}:\n"
            yield "| key | value | default | meaning |\n|---|---|---|---|"
            for key in form.keys:
                if not (shared and key.name in _STEP_KEYS):
                    yield f"| `{key.name}` | {_value(key)} | {_default(key)} | {key.doc} |"
            yield ""
            if form.title in epoch_docs:
                yield f"What shows that an epoch was written: {epoch_docs[form.title]}.\n"


def _value(key: TableKey) -> str:
    return key.kind.expects.replace("|", "\\|") or "a table"


def _default(key: TableKey) -> str:
    if key.required:
        return "must be there"
    if key.default_doc:
        return key.default_doc
    return "" if key.default in _NO_DEFAULT else f"`{_written(key)}`"


def _written(key: TableKey) -> str:
    written = key.kind.write(key.default)
    return (
        str(written).lower()
        if isinstance(written, bool)
        else f"{written:,}"
        if isinstance(written, int)
        else str(written)
    )
