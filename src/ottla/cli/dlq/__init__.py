"""`ottla dlq`: look into dead-letter topics, and send what is in them back."""
