"""Plain English for whoever reads an error: plurals, near misses, values cut short."""

import decimal
import difflib
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from oloproof_dagster.digests import integers_of_any_size


def json_kind(value: Any) -> str:
    """What a JSON value is, for a sentence that says what was found."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return "empty text" if value == "" else f"the {'text' if isinstance(value, str) else 'number'} {shortened(value)}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` with the known word that is nearest, or nothing where none is near."""
    near = difflib.get_close_matches(word[:200], list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def counted(n: int, noun: str) -> str:
    """`1 case`, `2 cases`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def unseen_paths(paths: Sequence[str]) -> str:
    """One line on paths of oloproof.yaml that lead nowhere."""
    return f"no case has the {'path' if len(paths) == 1 else 'paths'} {', '.join(paths)}: mistyped?"


def unread_criteria(criteria: Sequence[str]) -> str:
    """One line on criteria that no rule reads: whatever they show, the Gate does not see it."""
    return f"no rule of release.yaml reads {', '.join(criteria)}"


def own_word(criteria: Sequence[str]) -> str:
    """One line on fault replays in which nothing but the agent's own ending says that it recovered."""
    return (
        f"{', '.join(criteria)}: the verdict rests on the agent's own word, as recordings hold no constraint; write"
        " require_state: expected or a check on the evaluator"
    )


def shortened(value: Any) -> str:
    """A value as Python writes it, cut where it is long."""
    with integers_of_any_size():
        text = repr(value[:100] if isinstance(value, str) else value)
    return text if len(text) <= 80 else text[:77] + "..."


def outwards(bound: float, side: Literal["lower", "upper"], digits: int = 3) -> str:
    """A bound rounded away from its interval: a lower bound of 0.849996 is 0.849, an upper one of 0.9501 is 0.951."""
    rounding = decimal.ROUND_FLOOR if side == "lower" else decimal.ROUND_CEILING
    return str(decimal.Decimal(repr(float(bound))).quantize(decimal.Decimal(1).scaleb(-digits), rounding))


def interval_text(lower: float | None, upper: float | None) -> str:
    """`0.857 to 1.000`, rounded outwards; empty where there is no interval."""
    if lower is None or upper is None:
        return ""
    return f"{outwards(lower, 'lower')} to {outwards(upper, 'upper')}"
