"""The decisions of a broker as state machines without I/O: no clock, no file, no socket, no thread."""
