"""The command line: materialises through Dagster and reads stored tables."""

from oloproof_dagster.cli.command import cli as cli
from oloproof_dagster.cli.main import main as main
