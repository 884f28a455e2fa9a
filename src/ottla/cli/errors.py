"""What a command says when it cannot do what it was asked."""

FAILED = 1
USAGE = 2


class UserError(Exception):
    """A mistake that the person at the terminal can put right; the text says how."""

    code = USAGE


class ClusterError(UserError):
    """The cluster refused, or could not be reached; the text names it and says what to do."""

    code = FAILED
