"""Release gates for tool-calling agents: the world after each case against the world as it should be.

The public names, and nothing else. Each is imported when it is first used, so that a system under test does not load
Dagster by importing `AgentTrajectory`.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oloproof_dagster.assets.release import gated_asset as gated_asset
    from oloproof_dagster.assets.release import require_gate as require_gate
    from oloproof_dagster.definitions import build_definitions as build_definitions
    from oloproof_dagster.errors import ConfigError as ConfigError
    from oloproof_dagster.errors import EvidenceError as EvidenceError
    from oloproof_dagster.errors import MalformedTrajectory as MalformedTrajectory
    from oloproof_dagster.errors import NotJSON as NotJSON
    from oloproof_dagster.errors import OloproofError as OloproofError
    from oloproof_dagster.evaluators.case import CaseView as CaseView
    from oloproof_dagster.evaluators.verdict import Verdict as Verdict
    from oloproof_dagster.project.project import Project as Project
    from oloproof_dagster.project.project import load_project as load_project
    from oloproof_dagster.records.compared import Compared as Compared
    from oloproof_dagster.records.faults import ToolFault as ToolFault
    from oloproof_dagster.records.replay_change import ReplayChange as ReplayChange
    from oloproof_dagster.records.replay_change import Replayed as Replayed
    from oloproof_dagster.records.trajectory import AgentAnswer as AgentAnswer
    from oloproof_dagster.records.trajectory import AgentCheckpoint as AgentCheckpoint
    from oloproof_dagster.records.trajectory import AgentConstraintCheck as AgentConstraintCheck
    from oloproof_dagster.records.trajectory import AgentStep as AgentStep
    from oloproof_dagster.records.trajectory import AgentTrajectory as AgentTrajectory
    from oloproof_dagster.records.trajectory import AgentUsage as AgentUsage
    from oloproof_dagster.report.runs import Run as Run
    from oloproof_dagster.report.runs import load_run as load_run
    from oloproof_dagster.resources import EvidenceStore as EvidenceStore
    from oloproof_dagster.resources import SandboxResource as SandboxResource
    from oloproof_dagster.system.protocols import Replayable as Replayable
    from oloproof_dagster.system.protocols import Stateful as Stateful
    from oloproof_dagster.system.protocols import current_case as current_case

_HOME = {
    "AgentAnswer": "records.trajectory",
    "AgentCheckpoint": "records.trajectory",
    "AgentConstraintCheck": "records.trajectory",
    "AgentStep": "records.trajectory",
    "AgentTrajectory": "records.trajectory",
    "AgentUsage": "records.trajectory",
    "CaseView": "evaluators.case",
    "Compared": "records.compared",
    "ConfigError": "errors",
    "EvidenceError": "errors",
    "EvidenceStore": "resources",
    "MalformedTrajectory": "errors",
    "NotJSON": "errors",
    "OloproofError": "errors",
    "Project": "project.project",
    "ReplayChange": "records.replay_change",
    "Replayed": "records.replay_change",
    "Replayable": "system.protocols",
    "Run": "report.runs",
    "SandboxResource": "resources",
    "Stateful": "system.protocols",
    "ToolFault": "records.faults",
    "Verdict": "evaluators.verdict",
    "build_definitions": "definitions",
    "current_case": "system.protocols",
    "gated_asset": "assets.release",
    "load_project": "project.project",
    "load_run": "report.runs",
    "require_gate": "assets.release",
}

__version__ = "0.1.0"
__all__ = sorted([*_HOME, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
