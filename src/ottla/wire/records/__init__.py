"""Records of internal topics and of files beside the log, declared like the messages of the protocol."""
