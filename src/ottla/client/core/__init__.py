"""What the client decides, without I/O: no clock, no socket, no task; time is an argument."""
