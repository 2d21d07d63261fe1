"""The command line and the pages that describe it."""
