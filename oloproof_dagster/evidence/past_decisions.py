"""Every decision that was made of a version: judging again adds one and takes none away.

<root>/<version>/history/<when>-<run>.json   one decision, written once: its digest, and what was decided on what
"""

import json
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any

from oloproof_dagster.digests import canonical_json, digest_of_text
from oloproof_dagster.errors import EvidenceError
from oloproof_dagster.evidence.evidence import Evidence, encode_version


@dataclass(frozen=True, slots=True)
class PastDecision:
    """What a run decided of a version, when (UTC), and the digests of what it decided on."""

    run: str
    attempt: int | None
    action: str
    exit_code: int
    suite: str | None
    policy: str
    labels: str
    code: str | None
    at: str = ""


def note_decision(evidence: Evidence, version: str, decision: PastDecision) -> None:
    """Adds a decision, unless the last one is the same but for its run."""
    before = past_decisions(evidence, version)
    if before and replace(before[-1], at="", run="") == replace(decision, at="", run=""):
        return
    now = datetime.now(UTC)
    text = canonical_json(asdict(replace(decision, at=now.isoformat(timespec="seconds"))))
    name = f"{_folder(version)}/{now:%Y%m%dT%H%M%S%f}-{decision.run[:8]}.json"
    evidence.store.write(name, f"{_digest(text)} {text}\n".encode())


def past_decisions(evidence: Evidence, version: str) -> tuple[PastDecision, ...]:
    """The decisions that were made of a version, oldest first.

    Raises:
        EvidenceError: one of them is damaged.
    """
    folder = _folder(version)
    names = [name for name in evidence.store.names(folder) if name.endswith(".json") and not name.startswith(".")]
    return tuple(_read(evidence, f"{folder}/{name}") for name in names)


def _read(evidence: Evidence, name: str) -> PastDecision:
    digest, _, text = (evidence.store.read(name) or b"").decode(errors="replace").strip().partition(" ")
    if digest != _digest(text):
        raise EvidenceError(f"{evidence.store.path(name)} is damaged; delete it, and the decision is no longer listed")
    members: dict[str, Any] = json.loads(text)
    return PastDecision(**{each.name: members.get(each.name) for each in fields(PastDecision)})  # type: ignore[arg-type]


def _digest(text: str) -> str:
    return digest_of_text("decision/v1", text)


def _folder(version: str) -> str:
    return f"{encode_version(version)}/history"
