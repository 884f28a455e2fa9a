"""The documentation's tables of keys, made from the declarations."""

from collections.abc import Iterator
from typing import Final

from ottla.pipelines import keys
from ottla.pipelines.keys import Form, Key

SECTIONS: Final[tuple[tuple[str, tuple[Form, ...]], ...]] = (
    ("The pipeline", (keys.PIPELINE,)),
    ("`[source.NAME]`", keys.SOURCES),
    ("`[[step]]`", keys.STEPS),
    ("`watermark`", (keys.WATERMARK,)),
    ("`[sink.NAME]`", keys.SINKS),
    ("`[errors]`", (keys.ERRORS,)),
)
_STEP_KEYS: Final = ("name", "input", "watermark")
_NO_DEFAULT: Final = (None, "", ())


def reference_tables() -> str:
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for title, forms in SECTIONS:
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


def _value(key: Key) -> str:
    return key.kind.expects.replace("|", "\\|") or "a table"


def _default(key: Key) -> str:
    if key.required:
        return "must be there"
    if key.default_doc:
        return key.default_doc
    return "" if key.default in _NO_DEFAULT else f"`{_written(key)}`"


def _written(key: Key) -> str:
    written = key.kind.write(key.default)
    return (
        str(written).lower()
        if isinstance(written, bool)
        else f"{written:,}"
        if isinstance(written, int)
        else str(written)
    )
