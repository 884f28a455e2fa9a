"""The metadata log of the cluster, and the controller that decides requests on it."""
