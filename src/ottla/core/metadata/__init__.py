"""The cluster's metadata as a log-backed state machine: decisions produce records, and replayed records the image."""
