"""Pipelines on Spark. Nothing outside this package imports pyspark; whoever imports this package needs it.

Raises MissingRequirement, which says what to install, where the extra `spark` is not there.
"""

from ottla.pipelines.requirements import require_packages

require_packages()
