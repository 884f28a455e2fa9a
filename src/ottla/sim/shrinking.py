"""Reduces a failing seed to the parts that still fail.

Parts are left out one after the other: mishaps and faults, then clients. Leaving one out changes every later draw, so
each is tried with several other random sequences. A failure counts if it breaks the same invariant.
"""

import time
from typing import NamedTuple

from ottla.sim.played import AS_DRAWN, Variation
from ottla.sim.worlds import WorldSpec, kind_of

SALTS = 4
"""How many other random sequences are tried for each part."""


class Shrunk(NamedTuple):
    variation: Variation
    failure: Exception
    swarm: object
    runs: int


def shrink(world: WorldSpec, seed: int, failure: Exception, *, seconds: float) -> Shrunk:
    """`seconds` limits the time; the best result so far is returned."""
    swarm, variation, runs, until = world.draw(seed), AS_DRAWN, 0, time.monotonic() + seconds
    for part in swarm.parts():
        for salt in dict.fromkeys((variation.salt, *range(SALTS + 1))):
            if time.monotonic() > until:
                break
            tried = Variation((*variation.without, part), salt)
            runs += 1
            found = world(seed, tried).failure
            if found is not None and kind_of(found) == kind_of(failure):
                variation, failure = tried, found
                break
    return Shrunk(variation, failure, swarm.reduced(variation.without), runs)
