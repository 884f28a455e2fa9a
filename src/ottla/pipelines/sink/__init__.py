"""The sinks of pipelines, one module for each kind, and the writing of epochs to topics."""
