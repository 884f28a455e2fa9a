"""Serves ordinary Produce requests, and Fetch requests that repeat an earlier one, without decoding them.

Without this package every response is the same, but slower."""
