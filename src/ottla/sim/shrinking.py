"""A seed that fails, with as little in it as still fails: what is left tells where to look.

Parts are left out one after the other: mishaps and faults, then clients. Leaving out one changes every draw that comes
after it, so each is tried with some other chances, too. A failure counts if it breaks the same invariant.
"""

import time
from typing import NamedTuple

from ottla.sim.run import AS_DRAWN, Variation
from ottla.sim.worlds import World, kind_of

SALTS = 4
"""How many other chances each part is given."""


class Shrunk(NamedTuple):
    variation: Variation
    failure: Exception
    swarm: object
    runs: int


def shrink(world: World, seed: int, failure: Exception, *, seconds: float) -> Shrunk:
    """`seconds` is how long that may take; what was found by then is good enough."""
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
