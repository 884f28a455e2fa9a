"""The outside world behind small ports: clock, disk. `sim/` has the same ports under virtual time and faults."""
