"""The topic source of pipelines: where it starts, which offsets an epoch reads, and the records as Arrow batches."""
