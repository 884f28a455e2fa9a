"""Reads one table of a document by its form, and writes it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ottla.pipelines.spec.keys import TableForm
from ottla.pipelines.spec.problems import Findings, Path, SecretFound, Unfit, did_you_mean, listed

HIDDEN: Final = "[hidden]"
_NOTHING: Final[tuple[object, ...]] = (None, "", ())


def as_table(value: object, path: Path, findings: Findings) -> Mapping[str, object] | None:
    if isinstance(value, Mapping):
        return value
    findings.add(path, value, "expected a table of keys and values", "a table")
    return None


def choose(raw: Mapping[str, object], forms: Sequence[TableForm], path: Path, findings: Findings) -> TableForm | None:
    """The form that the table's keys decide for. None, with a finding, if there is no such form or more than one."""
    chosen = [form for form in forms if any(key in raw for key in form.chosen_by)]
    if len(chosen) > 1:  # `watermark` alone is a form too, but it may go with every other.
        chosen = [form for form in chosen if form.chosen_by != ("watermark",)]
    words = listed(key for form in forms for key in form.chosen_by)
    if len(chosen) == 1:
        return chosen[0]
    if chosen:
        given = [key for form in chosen for key in form.chosen_by if key in raw]
        findings.add(path, None, f"{listed(given, 'and')} exclude each other; keep one", words)
        return None
    near = [key for key in raw if did_you_mean(key, [key for form in forms for key in form.chosen_by])]
    hint = did_you_mean(near[0], [key for form in forms for key in form.chosen_by]) if near else ""
    findings.add(path, None, f"one of {words} must be there{hint}", words)
    return None


def read_table(
    raw: Mapping[str, object],
    form: TableForm,
    path: Path,
    findings: Findings,
    others: Sequence[TableForm] = (),
) -> tuple[dict[str, Any], bool]:
    """The values by the names of the spec's attributes, and whether all required ones are right.

    A wrong value is reported and replaced by the default, so that everything else is still checked.
    """
    values: dict[str, Any] = {}
    whole = True
    for name in raw:
        if name not in form.names:
            _unknown(name, form, (*path, name), findings, others)
    for key in form.keys:
        values[key.attribute] = key.default
        if key.name not in raw:
            if key.required:
                whole = False
                findings.add(
                    path, None, f"{form.title} needs {key.name}: {key.kind.expects or 'see the documentation'}"
                )
            continue
        try:
            values[key.attribute] = key.kind.read(raw[key.name])
        except Unfit as unfit:
            whole = whole and not key.required
            value: object = HIDDEN if isinstance(unfit, SecretFound) else raw[key.name]
            findings.add_unfit((*path, key.name), value, unfit)
    return values, whole


def _unknown(name: str, form: TableForm, path: Path, findings: Findings, others: Sequence[TableForm]) -> None:
    elsewhere = [other.title for other in others if name in other.names]
    if elsewhere:
        told = f"belongs to {listed(elsewhere)}, not to {form.title}"
    else:
        told = "no such key"
    hint = "" if elsewhere else did_you_mean(name, form.names)
    findings.add(path, None, f"{told}; {form.title} has {', '.join(form.names)}{hint}", ", ".join(form.names))


def write_table(value: object, form: TableForm, skip: Callable[[str], bool] = lambda _: False) -> dict[str, Any]:
    """The table with all values, including defaults, so that its meaning does not change when a default does."""
    written = {}
    for key in form.keys:
        if not skip(key.name):
            held = getattr(value, key.attribute)
            if held not in _NOTHING:
                written[key.name] = key.kind.write(held)
    return written
