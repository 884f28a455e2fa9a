"""Pipelines on Spark. No module outside this package imports pyspark when it is loaded.

Importing this package raises MissingRequirement, which says what to install, if the extra `spark` is missing.
"""

from ottla.pipelines.run.requirements import require_packages

require_packages()
