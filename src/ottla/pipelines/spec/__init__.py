"""The spec of a pipeline: its parts, the keys that declare them, the values that they allow, and problems in them."""
