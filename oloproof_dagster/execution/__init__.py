"""Cases executed and replayed around sandboxes, or answered from what is recorded under their keys."""
