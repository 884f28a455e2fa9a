"""What is known of the costliest lines, by the function they are in, and of aims that were missed, by the load."""

LINES: dict[str, str] = {}

MISSES: dict[str, str] = {}
