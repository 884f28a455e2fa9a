"""`ottla pipeline`: checks, runs, replays and watches data pipelines."""
