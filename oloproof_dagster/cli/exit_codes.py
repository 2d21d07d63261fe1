"""The exit codes of a command that are no Gate's: 0, 1, 3, 4 and 5 are the Gate's own."""

USAGE, CRASH, BROKEN_PIPE = 2, 70, 141
HUNG_UP, INTERRUPTED, TERMINATED = 129, 130, 143
