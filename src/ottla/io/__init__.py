"""Ports to the outside world (clock, disk, network) and their implementation on this machine. `sim/` implements the
same ports with virtual time and faults."""
