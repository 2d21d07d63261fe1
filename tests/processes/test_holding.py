"""A version that a run holds: what another process finds, and what it finds once that run was killed."""

from pathlib import Path

import pytest

from oloproof_dagster.errors import EvidenceError
from oloproof_dagster.evidence.evidence import Evidence
from tests.support.holding import another_holding


def test_a_version_is_held_by_one_run_at_a_time_and_a_killed_one_lets_go(tmp_path: Path) -> None:
    evidence = Evidence(tmp_path)
    with another_holding(evidence):
        with pytest.raises(EvidenceError, match="another run is executing version 'v1'"), evidence.held("v1"):
            pass
        assert (evidence.is_held("v1"), evidence.is_held("v2")) == (True, False)
        with evidence.held("v2"):
            pass
    assert not evidence.is_held("v1")
    with evidence.held("v1"):
        pass
