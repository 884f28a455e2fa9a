"""Data pipelines: what they are, how they are written down and checked. Nothing here needs Spark.

A TOML file (`load_toml`) and Python (`Declaration`) give the same frozen `Pipeline`; every mistake is told of at once,
with its file and line (`InvalidPipeline`).
"""

from ottla.pipelines.compare import compare as compare
from ottla.pipelines.document import canonical as canonical
from ottla.pipelines.document import from_canonical as from_canonical
from ottla.pipelines.document import spec_hash as spec_hash
from ottla.pipelines.files import load_toml as load_toml
from ottla.pipelines.identity import Identity as Identity
from ottla.pipelines.problems import InvalidPipeline as InvalidPipeline
from ottla.pipelines.problems import Problem as Problem
from ottla.pipelines.registry import Declaration as Declaration
from ottla.pipelines.spec import Pipeline as Pipeline
