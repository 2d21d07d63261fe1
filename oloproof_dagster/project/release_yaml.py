"""release.yaml: the rules that the Gate decides, frozen and checked."""

import os
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from oloproof_dagster.errors import ConfigError
from oloproof_dagster.project.strict_yaml import line_of, read_yaml
from oloproof_dagster.project.validation import FileModel, Misplaced, validate
from oloproof_dagster.wording import did_you_mean, shortened

State = Literal["PASS", "FAIL", "INSUFFICIENT_EVIDENCE", "MANUAL_REVIEW"]
Rate = Annotated[float, Field(ge=0, le=1)]

GATE_CHECK = "release"
"""The name of the Gate's own blocking check; a rule cannot bear it."""


class Rule(FileModel):
    """One bar. Exactly one of `min`, `max` (on the interval's bounds, in [0, 1]) and `max_failures` (a count)."""

    id: str
    metric: str
    min: Rate | None = None
    max: Rate | None = None
    max_failures: Annotated[int, Field(ge=0)] | None = None
    max_missing_fraction: Rate | None = None
    min_eligible: Annotated[int, Field(ge=1)] | None = None
    requires_manual_review: bool = False

    @field_validator("id")
    @classmethod
    def _a_word(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9_]+", value):
            raise ValueError(f"{shortened(value)} must hold letters, digits and _ only")
        if value == GATE_CHECK:
            raise ValueError(f"{value!r} is the name of the Gate's own check; choose another id")
        return value

    @model_validator(mode="after")
    def _one_bar(self) -> "Rule":
        bars = [name for name in ("min", "max", "max_failures") if getattr(self, name) is not None]
        if len(bars) != 1:
            found = f"found {' and '.join(bars)}" if bars else "found none"
            raise ValueError(f"rule {self.id!r} needs exactly one of min, max, max_failures; {found}")
        if self.max_missing_fraction is not None and self.max_failures is not None:
            raise Misplaced(
                f"goes with min and max only, and rule {self.id!r} has max_failures; remove it", "max_missing_fraction"
            )
        if self.min_eligible is not None and self.max_failures is None:
            bar = "min" if self.min is not None else "max"
            raise Misplaced(
                f"goes with max_failures only, and rule {self.id!r} has {bar}, whose interval counts the verdicts;"
                " remove it",
                "min_eligible",
            )
        return self

    @property
    def direction(self) -> Literal["min", "max", "count"]:
        """Which side of the bar passes; `count` for a limit on failures."""
        return "min" if self.min is not None else "max" if self.max is not None else "count"

    @property
    def threshold(self) -> float:
        """The bar: a rate in [0, 1], or the count rule's limit."""
        return next(float(bar) for bar in (self.min, self.max, self.max_failures) if bar is not None)


class Policy(FileModel):
    """The release policy. `confidence_level` is two-sided; states listed in neither block_on nor warn_on allow."""

    version: Literal[1]
    confidence_level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    allow_approximate_methods: bool = False
    min_clusters: Annotated[int, Field(ge=10)] = 20
    block_on: tuple[State, ...] = ("FAIL", "INSUFFICIENT_EVIDENCE", "MANUAL_REVIEW")
    warn_on: tuple[State, ...] = ()
    block_on_partial_run: bool = True
    rules: tuple[Rule, ...]

    @field_validator("rules")
    @classmethod
    def _some_and_unique(cls, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
        if not rules:
            raise ValueError("a policy needs at least one rule; delete the file to measure without deciding")
        seen: set[str] = set()
        for position, rule in enumerate(rules):
            if rule.id in seen:
                raise Misplaced(f"two rules have the id {rule.id!r}; rename one", position, "id")
            seen.add(rule.id)
        return rules

    @model_validator(mode="after")
    def _one_meaning(self) -> "Policy":
        both = sorted(set(self.block_on) & set(self.warn_on))
        if both:
            raise Misplaced(f"{both[0]} stands in both block_on and warn_on; take it out of one", "warn_on")
        return self


def load_policy(path: Path, criteria: tuple[str, ...]) -> Policy | None:
    """The policy in a file, or None where there is no such file: a run then measures and decides nothing.

    Raises:
        ConfigError: with line and key; also for a rule on a criterion that no evaluator declares.
    """
    if not os.path.lexists(path):
        if path.suffix == ".yaml" and os.path.lexists(path.with_suffix(".yml")):
            # Nothing would be decided, and the user would not know why.
            raise ConfigError.at(path.with_suffix(".yml").name, None, f"is not read; rename it to {path.name}")
        return None
    tree = read_yaml(path)
    policy = validate(Policy, tree, path.name)
    for position, rule in enumerate(policy.rules):
        if rule.metric not in criteria:
            raise ConfigError.at(
                path.name,
                line_of(tree, "rules", position, "metric"),
                f"rule {rule.id!r}: no evaluator declares the criterion {shortened(rule.metric)};"
                f" declared are: {', '.join(criteria)}{did_you_mean(rule.metric, criteria)}",
            )
    return policy
