"""Cases read from JSONL, expanded by transforms, with people's labels on the pairs."""
