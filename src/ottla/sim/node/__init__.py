"""The world `node`: a whole node and its clients in one loop, with a faulty network and disk."""
