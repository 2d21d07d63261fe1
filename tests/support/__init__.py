"""What tests share: projects, runs, servers, sandboxes that misbehave."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The checkout, or the copy of it that the tests run from: it holds everything but the package's source."""

CHECKOUT = Path(os.environ.get("OLOPROOF_CHECKOUT", ROOT))
"""The checkout, also where the tests run from a copy."""

VECTORS = ROOT / "tests" / "vectors"
