"""A release run in the command's own process: the same job and instance that Dagster's pages show."""
