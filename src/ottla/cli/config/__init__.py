"""`ottla config`: read and change the settings of topics and brokers."""
