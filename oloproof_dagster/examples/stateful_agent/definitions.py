"""What Dagster loads in this folder: the release run of the refund desk, and one asset behind its Gate."""

from pathlib import Path

import dagster as dg

from oloproof_dagster import build_definitions, gated_asset

here = Path(__file__).parent


@gated_asset(here)
def promote(context: dg.AssetExecutionContext) -> None:
    """The release of this system version; its body runs only where the Gate says ALLOW."""
    context.log.info(f"Refund desk {context.partition_key} may answer customers.")


defs = dg.Definitions.merge(build_definitions(here), dg.Definitions(assets=[promote]))
