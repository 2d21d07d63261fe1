"""What tests share: projects, runs, servers, sandboxes that misbehave."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The checkout, or the copy that the tests run from."""

VECTORS = ROOT / "tests" / "vectors"
