"""The calls that a case expects against those that were made; the calls of one turn have no order among themselves."""

from collections.abc import Sequence
from typing import Any, Literal

from oloproof_dagster.evaluators.call_order import by_turn
from oloproof_dagster.records.comparison import Comparison, can_be_paired
from oloproof_dagster.records.trajectory import AgentStep

Manner = Literal["exact", "in_order", "any_order", "subset"]
_ARGUMENTS = Comparison(mode="subset")


def shown_wrong(manner: Manner, expected: Sequence[Any], made: Sequence[AgentStep]) -> str | None:
    """What is wrong already, whatever calls come after; only the manners that allow no other call show it."""
    if manner == "any_order":
        # Every call made so far must be one of the expected.
        fits = [[j for j, each in enumerate(expected) if _fits(each, call)] for call in made]
        return None if can_be_paired(fits) else "made a call that is not expected, or one too often"
    if manner == "exact":
        position = 0
        for group in by_turn(made):
            wanted = expected[position : position + len(group)]
            if not can_be_paired([[j for j, each in enumerate(wanted) if _fits(each, call)] for call in group]):
                if len(wanted) < len(group):
                    return f"made {len(made)} calls where {len(expected)} are expected"
                return f"step {group[0].index} calls {group[0].tool_name}, not {_named(wanted[0])}"
            position += len(group)
    return None


def lacking(manner: Manner, expected: Sequence[Any], made: Sequence[AgentStep]) -> str | None:
    """Which expected call was not made, in the order that the manner asks for; None where none is lacking."""
    if manner in ("any_order", "subset"):
        fits = [[j for j, call in enumerate(made) if _fits(each, call)] for each in expected]
        if can_be_paired(fits):
            return None
        never = next((each for each, found in zip(expected, fits, strict=True) if not found), None)
        return f"never called {_named(never)}" if never is not None else "made an expected call too seldom"
    position = 0
    for group in by_turn(made):
        # As many of the next expected calls as this turn holds.
        n = 0
        while position + n < len(expected) and can_be_paired(
            [[j for j, call in enumerate(group) if _fits(each, call)] for each in expected[position : position + n + 1]]
        ):
            n += 1
        position += n
    return None if position == len(expected) else f"did not call {_named(expected[position])} in its place"


def _fits(expected: Any, call: AgentStep) -> bool:
    if call.tool_name != expected["tool"]:
        return False
    return "arguments" not in expected or _ARGUMENTS.equal(expected["arguments"], call.arguments)


def _named(expected: Any) -> str:
    return str(expected["tool"]) + (" with the expected arguments" if expected.get("arguments") else "")
