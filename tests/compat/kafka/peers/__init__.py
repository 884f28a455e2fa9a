"""Real peers to test against: Apache Kafka's jars, its tools, its broker, and the files it writes."""
