"""The faults that a replay can inject, and what the agent sees of each in place of the call's result."""

from typing import Literal

Fault = Literal["error", "timeout", "malformed"]


FAULT_RESULTS: dict[Fault, dict[str, str]] = {
    "error": {"error": "internal error"},
    "timeout": {"error": "timeout"},
    "malformed": {"raw": '{"status": '},
}
"""What the agent sees instead of the call's result; plain on purpose, nothing in it says that this is a test."""
