"""The cluster's metadata as a log-backed state machine: decisions make records, records make the image."""
