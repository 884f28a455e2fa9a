"""What a command says when it cannot do what it was asked."""


class UserError(Exception):
    """A mistake that the person at the terminal can put right; the text says how."""
