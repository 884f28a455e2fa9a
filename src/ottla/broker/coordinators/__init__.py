"""The coordinators of groups and transactions: they run state machines on the internal topics of this broker."""
