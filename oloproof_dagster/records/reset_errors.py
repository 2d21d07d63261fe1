"""How the error of a case is known whose world was not what `reset` was to make of it."""

RIGHT_AFTER = "right after reset, "
_BEGINS = "reset: "


def reset_error(differences: str) -> str:
    """The error of a case whose reset left something else than it should."""
    return _BEGINS + differences


def is_reset_error(error: str | None) -> bool:
    """Whether an error says that of a reset. It says nothing of the agent, and is never an answer for a later run."""
    return error is not None and error.startswith(_BEGINS) and RIGHT_AFTER in error
