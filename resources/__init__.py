"""What assets are given: the sandbox of the system under test, and the store of its evidence."""

from oloproof_dagster.resources.evidence import EvidenceIOManager, EvidenceStore
from oloproof_dagster.resources.sandbox import SandboxResource

__all__ = ["EvidenceIOManager", "EvidenceStore", "SandboxResource"]
