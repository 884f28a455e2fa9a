"""A whole node and its clients in one loop: virtual time, a network with weather, a disk with faults, one seed."""
