"""The simulator: virtual time, a faulty disk and network, one seed; and checkers of the invariants."""
