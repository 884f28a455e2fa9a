"""`python -m ottla.pipelines`: print the tables of keys that docs/pipelines.md ends with."""

from ottla.pipelines.spec.reference import reference_tables

print(reference_tables(), end="")
