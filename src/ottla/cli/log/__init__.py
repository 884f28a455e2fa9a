"""`ottla log`: look into the files of a partition, whoever wrote them, without a broker, changing nothing."""
