"""The exceptions and warnings that a user is told about in one line."""


class InputError(ValueError):
    """Something the user gave cannot be used; the message says what and how to fix it.

    The command line prints the message on one line and exits with code 2.
    """


class LostProcessError(RuntimeError):
    """One of several processes that worked together has ended, so the others cannot go on."""


class TrainingWarning(UserWarning):
    """A trained model looks as if it had learned little; the message says what to try next.

    Example:
        >>> import warnings
        >>> from vepm.errors import TrainingWarning
        >>> warnings.simplefilter("ignore", TrainingWarning)  # or "error", to stop at the first
    """


class DivergedError(InputError):
    """A loss or weight is no longer a finite number; nothing of it was saved."""
