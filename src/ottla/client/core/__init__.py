"""The client's decisions, without I/O: no clock, no socket, no task; time is an argument."""
