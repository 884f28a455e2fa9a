"""Groups as a log-backed state machine on `__consumer_offsets`."""
