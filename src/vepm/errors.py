"""The exception for everything a user can put right."""


class InputError(ValueError):
    """Something the user gave cannot be used; the message says what and how to mend it.

    The command line prints the message on one line and exits with code 2.

    Example:
        >>> from vepm.errors import InputError
        >>> raise InputError("edges.csv, row 3: node 'z9' is not in nodes.csv; add it there")
        Traceback (most recent call last):
        ...
        vepm.errors.InputError: edges.csv, row 3: node 'z9' is not in nodes.csv; add it there
    """


class DivergedError(InputError):
    """A loss or weight is no longer a finite number; nothing of it was saved."""
