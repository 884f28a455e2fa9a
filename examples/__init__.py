"""Pipelines that are ready to run, with the data they read; docs/examples has a page for each."""
