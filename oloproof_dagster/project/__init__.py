"""The user's own files: YAML read strictly, with file, line and key for every mistake; a project is the sum of them."""
