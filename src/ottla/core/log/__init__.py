"""One partition's log as a pure state machine, and the formats of the files beside it."""
