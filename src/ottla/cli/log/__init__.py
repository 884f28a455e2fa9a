"""`ottla log`: shows and verifies the files of a partition, Ottla's or Kafka's, without a broker and without changing
them."""
