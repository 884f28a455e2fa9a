"""`ottla dlq`: inspects dead-letter topics and sends dead letters back to their source topics."""
