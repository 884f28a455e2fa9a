"""Log events and log levels."""
