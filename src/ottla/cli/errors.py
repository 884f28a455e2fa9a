"""Errors of commands."""

FAILED = 1
USAGE = 2


class UserError(Exception):
    """A mistake that the user can correct; the text says how."""

    code = USAGE


class ClusterError(UserError):
    """The cluster refused or could not be reached; the text names it and says what to do."""

    code = FAILED
