"""Ottla in a bottle: virtual time, a disk with faults, one seed; and the checkers that watch what happens there."""
