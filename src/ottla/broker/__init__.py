"""A node at run time: its connections, requests and partitions. Decisions are in `core/`, files in `storage/`."""
