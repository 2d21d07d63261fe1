"""`python -m oloproof_dagster.cli`: the command line without its script."""

from oloproof_dagster.cli.main import program

program()
