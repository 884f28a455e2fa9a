"""The partitions on this broker, and the Fetch requests that wait for their records."""
