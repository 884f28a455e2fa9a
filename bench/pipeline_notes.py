"""What is known of aims that were missed, by the job."""

MISSES: dict[str, str] = {}
