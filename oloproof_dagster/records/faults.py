"""The faults that a replay can inject, and what the agent sees of each in place of the call's result."""

from typing import Any, Literal

Fault = Literal["error", "timeout", "malformed"]
Delivery = Literal["result", "exception"]
"""How a fault reaches the agent: as the call's result, or as an exception that the call raises."""


FAULT_RESULTS: dict[Fault, dict[str, str]] = {
    "error": {"error": "internal error"},
    "timeout": {"error": "timeout"},
    "malformed": {"raw": '{"status": '},
}
"""What the agent sees instead of the call's result; plain on purpose, nothing in it says that this is a test."""


class ToolFault(Exception):
    """What a faulted call raises under `delivery: exception`; `result` is what it returns otherwise."""

    def __init__(self, fault: Fault) -> None:
        self.fault: Fault = fault
        self.result: dict[str, Any] = dict(FAULT_RESULTS[fault])
        super().__init__(next(iter(FAULT_RESULTS[fault].values())))


def comes_from_a_fault(error: BaseException) -> bool:
    """Whether an exception is a ToolFault, or was raised while one was handled."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        if issubclass(type(each), ToolFault):
            return True
        waiting += [each.__cause__, None if each.__suppress_context__ else each.__context__]
        waiting += each.exceptions if isinstance(each, BaseExceptionGroup) else ()
    return False
