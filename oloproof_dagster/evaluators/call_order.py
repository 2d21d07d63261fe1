"""Tool calls in order: two sequences of calls compared, where calls that one model answer asked for have no order.

Pure functions over the calls of recordings; replays, relations and tool criteria read them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from oloproof_dagster.records.comparison import json_equal
from oloproof_dagster.records.trajectory import AgentStep

Pair = tuple[AgentStep, AgentStep]


@dataclass(frozen=True, slots=True)
class Matched:
    """Calls brought together with their counterparts, up to the first difference.

    `recorded` and `made` are the two calls that differ, None on the side that has no more; `same` where none do.
    """

    pairs: tuple[Pair, ...]
    same: bool
    recorded: AgentStep | None = None
    made: AgentStep | None = None


def same_call(recorded: AgentStep, made: AgentStep) -> bool:
    """Whether two calls are to one tool with equal arguments."""
    return recorded.tool_name == made.tool_name and json_equal(recorded.arguments, made.arguments)


def by_turn(calls: Iterable[AgentStep]) -> list[list[AgentStep]]:
    """The calls in groups that have no order within: those of one turn; a call without a turn stands alone."""
    groups: list[list[AgentStep]] = []
    for call in calls:
        if groups and call.turn is not None and groups[-1][-1].turn == call.turn:
            groups[-1].append(call)
        else:
            groups.append([call])
    return groups


def match(recorded: Sequence[AgentStep], made: Sequence[AgentStep]) -> Matched:
    """The calls of a recording with those made again: equal in number, tools, arguments and order.

    Within a turn the order is free where both sides say that the calls are of one turn.
    """
    pairs: list[Pair] = []
    position = 0
    for group in by_turn(recorded):
        there = list(made[position : position + len(group)])
        position += len(group)
        found, recorded_left, made_left = pair(group, there, free=_of_one_turn(there))
        pairs += found
        if recorded_left or made_left:
            return Matched(tuple(pairs), False, _first(recorded_left), _first(made_left))
    left = made[position:]
    return Matched(tuple(pairs), not left, None, _first(left))


def pair(
    recorded: Sequence[AgentStep], made: Sequence[AgentStep], *, free: bool
) -> tuple[list[Pair], list[AgentStep], list[AgentStep]]:
    """The pairs of equal calls, and what has no partner on either side; in order, or `free` of it."""
    pairs: list[Pair] = []
    left = list(made)
    for position, call in enumerate(recorded):
        candidates = range(len(left)) if free else range(min(1, len(left)))
        at = next((i for i in candidates if same_call(call, left[i])), None)
        if at is None:
            return pairs, list(recorded[position:]), left
        pairs.append((call, left.pop(at)))
    return pairs, [], left


def _of_one_turn(calls: Sequence[AgentStep]) -> bool:
    return len({call.turn for call in calls}) == 1 and calls[0].turn is not None


def _first(calls: Sequence[AgentStep]) -> AgentStep | None:
    return calls[0] if calls else None
