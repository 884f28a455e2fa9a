"""Data pipelines: loads a pipeline from a file, checks it, and compares it with its checkpoint. Needs no Spark.

A TOML file (`load_toml`) and Python code (`Declaration`) result in the same frozen `Pipeline`. Mistakes are reported
together, each with its file and line (`InvalidPipeline`).
"""

from ottla.pipelines.authoring.document import canonical as canonical
from ottla.pipelines.authoring.document import from_canonical as from_canonical
from ottla.pipelines.authoring.document import spec_hash as spec_hash
from ottla.pipelines.authoring.files import load_toml as load_toml
from ottla.pipelines.authoring.registry import Declaration as Declaration
from ottla.pipelines.run.compare import compare as compare
from ottla.pipelines.spec.identity import PipelineIdentity as PipelineIdentity
from ottla.pipelines.spec.model import Pipeline as Pipeline
from ottla.pipelines.spec.problems import InvalidPipeline as InvalidPipeline
from ottla.pipelines.spec.problems import Problem as Problem
