"""The exit codes of a command that are no Gate's: 0, 1, 3, 4 and 5 are the Gate's own."""

NOT_DECIDED = 5
"""Also the Gate's, where evidence is missing: part of a suite is never an ALLOW."""
USAGE, CRASH, BROKEN_PIPE = 2, 70, 141
HUNG_UP, INTERRUPTED, TERMINATED = 129, 130, 143
