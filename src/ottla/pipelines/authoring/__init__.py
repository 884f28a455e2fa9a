"""Reads a pipeline from TOML or Python, checks it, and writes the spec as a canonical document."""
