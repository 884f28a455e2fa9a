"""Connections: frames in, each request to its handler, responses out in order."""
