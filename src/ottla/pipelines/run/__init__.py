"""The parts of a running pipeline that do not use Spark: checkpoint, failures, lag, requirements."""
