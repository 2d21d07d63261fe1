"""Sandboxes in processes of their own: started, given calls, timed, ended with all that they started."""
