"""A simulated machine: event loop, clock, disk, threads, network and processes, all under one seed."""
