"""The glue of a node: connections, requests, partitions. Decisions are in `core/`, files in `storage/`."""
