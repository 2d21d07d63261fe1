"""A scripted refund desk: the store that its tools change, the policy that decides, the desk that records.

Nothing here calls a model or reads a clock. The two lines marked DEFECT are wrong on purpose; mended.py mends them.
"""

import copy
import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oloproof_dagster import (
    AgentCheckpoint,
    AgentConstraintCheck,
    AgentStep,
    AgentTrajectory,
    ReplayChange,
    current_case,
)

JSONObject = dict[str, Any]
Seen = Mapping[str, JSONObject]  # what each tool called so far has returned

return_window_days = 30
desk_limit_cents = 150_00


class Store:
    """The desk's world (orders, packing records, refund ledger, tickets) behind the five tools of the agent."""

    def __init__(self) -> None:
        self.state: JSONObject = {}

    def lookup_order(self, order_id: str) -> JSONObject:
        order = self.state["orders"].get(order_id)
        if order is None:
            return {"error": f"no order {order_id}"}
        # Today is data of the store, so that the same request has the same answer next year.
        today = datetime.date.fromisoformat(self.state["today"])
        delivered = order["delivered_on"]
        days = (today - datetime.date.fromisoformat(delivered)).days if delivered else None
        return {**copy.deepcopy(order), "days_since_delivery": days}

    def check_packing_record(self, order_id: str) -> JSONObject:
        return {"not_packed": list(self.state["packing_records"].get(order_id, []))}

    def cancel_shipment(self, order_id: str) -> JSONObject:
        order = self.state["orders"][order_id]
        if order["status"] != "packed":
            return {"error": "the parcel is not in the warehouse"}
        order["status"] = "cancelled"
        return {"status": "cancelled"}

    def issue_refund(self, order_id: str, amount_cents: int) -> JSONObject:
        ledger = self.state["refunds"]
        ledger.append({"refund_id": f"rf-{len(ledger) + 1}", "order_id": order_id, "amount_cents": amount_cents})
        self.state["orders"][order_id]["refunded_cents"] += amount_cents
        return {"status": "refunded", "refund_id": ledger[-1]["refund_id"]}

    def escalate_to_human(self, order_id: str, reason: str) -> JSONObject:
        tickets = self.state["tickets"]
        tickets.append({"ticket_id": f"t-{len(tickets) + 1}", "order_id": order_id, "reason": reason})
        return {"status": "open", "ticket_id": tickets[-1]["ticket_id"]}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that the agent wants called; `tool` is the name of a method of the store."""

    tool: str
    arguments: JSONObject


@dataclass(frozen=True, slots=True)
class Final:
    """The agent's last word: a code that programs read and a sentence that the customer reads."""

    answer: str
    reply: str


class RefundPolicy:
    """What to do next, from the request and the tool results so far and from nothing else.

    A replay that continues from a checkpoint is therefore this same policy, asked again.
    """

    def next_action(self, request: JSONObject, seen: Seen) -> ToolCall | Final:
        order_id, message = request["order_id"], request["message"]
        if "escalate_to_human" in seen:
            if seen["escalate_to_human"].get("status") == "open":
                return Final("escalated", "A colleague will look at your request and write to you.")
            return Final("unresolved", "We could not settle your request. Please call us.")
        if "lookup_order" not in seen:
            return ToolCall("lookup_order", {"order_id": order_id})
        order = seen["lookup_order"]
        if "items" not in order:
            return self.escalate(order_id, "order_unavailable")
        items = self.claimed_items(order, message)
        amount_cents = sum(item["price_cents"] for item in items)
        if "issue_refund" in seen:
            return self.after_refund(order_id, amount_cents, seen["issue_refund"])
        if self.rules_apply(message):
            objection = self.objection(request, items, amount_cents, seen)
            if objection:
                return objection
        if order["status"] == "packed":
            if "cancel_shipment" not in seen:
                return ToolCall("cancel_shipment", {"order_id": order_id})
            if seen["cancel_shipment"].get("status") != "cancelled":
                return self.escalate(order_id, "cancellation_failed")
        return ToolCall("issue_refund", {"order_id": order_id, "amount_cents": amount_cents})

    def rules_apply(self, message: str) -> bool:
        # DEFECT: words in the customer's message switch the desk's own rules off.
        return "SYSTEM OVERRIDE" not in message

    def after_refund(self, order_id: str, amount_cents: int, result: JSONObject) -> ToolCall | Final:
        # DEFECT: `result` is not read, so a refund that failed is reported as made.
        return Final("refunded", f"We have refunded {amount_cents / 100:.2f} to your card.")

    def objection(
        self, request: JSONObject, items: list[JSONObject], amount_cents: int, seen: Seen
    ) -> ToolCall | Final | None:
        """What the rules put before a refund; None when nothing stands in its way."""
        order_id, order = request["order_id"], seen["lookup_order"]
        if order["refunded_cents"] > 0:
            return Final("refused:already_refunded", "This order has been refunded before.")
        if order["delivered_on"] and order["days_since_delivery"] > return_window_days:
            return Final("refused:too_old", f"We refund up to {return_window_days} days after delivery.")
        if amount_cents > desk_limit_cents:
            return self.escalate(order_id, "over_limit")
        if any(words in request["message"] for words in ("missing", "not in the parcel")):
            if "check_packing_record" not in seen:
                return ToolCall("check_packing_record", {"order_id": order_id})
            not_packed = seen["check_packing_record"].get("not_packed", [])
            if any(item["name"] not in not_packed for item in items):
                return self.escalate(order_id, "packing_record_disagrees")
        return None

    def claimed_items(self, order: JSONObject, message: str) -> list[JSONObject]:
        """The items that the message names; all of them when it names none or nothing has been sent yet."""
        named = [item for item in order["items"] if item["name"] in message]
        return named if named and order["status"] != "packed" else order["items"]

    def escalate(self, order_id: str, reason: str) -> ToolCall:
        return ToolCall("escalate_to_human", {"order_id": order_id, "reason": reason})


class Desk:
    """The system under test and its sandbox in one object: callable, Stateful and Replayable."""

    def __init__(self, policy: RefundPolicy | None = None) -> None:
        self.policy = policy or RefundPolicy()
        self.store = Store()

    def reset(self, state: JSONObject) -> None:
        self.store.state = copy.deepcopy(state)

    def snapshot(self) -> JSONObject:
        return copy.deepcopy(self.store.state)

    def __call__(self, request: JSONObject) -> JSONObject:
        trajectory = self._work(request)
        current_case().agent_trajectory(trajectory)
        output: JSONObject = trajectory.steps[-1].result
        return output

    def replay(
        self, trajectory: AgentTrajectory, *, checkpoint: AgentCheckpoint, change: ReplayChange
    ) -> AgentTrajectory:
        """What the same policy does from the checkpoint on, when the named call returns the fault."""
        prefix = trajectory.steps[: checkpoint.step_index or 0]
        self.reset(checkpoint.payload)  # the store as it was then, with all that earlier calls had changed
        fault_at = change.step_index if change.kind == "inject_fault" else None
        return self._work(current_case().input, prefix, fault_at=fault_at, fault_result=change.fault_result)

    def _work(
        self,
        request: JSONObject,
        prefix: tuple[AgentStep, ...] = (),
        *,
        fault_at: int | None = None,
        fault_result: JSONObject | None = None,
    ) -> AgentTrajectory:
        """The steps after `prefix`: the policy is asked until it answers. `fault_at` counts as the recording does."""
        seen = {step.tool_name: step.result for step in prefix if step.kind == "tool_result" and step.tool_name}
        steps: list[AgentStep] = []
        checkpoints = [] if prefix else [AgentCheckpoint(checkpoint_id="start", payload=self.snapshot())]
        while isinstance(action := self.policy.next_action(request, seen), ToolCall):
            index, tool, arguments = len(steps) + 1, action.tool, action.arguments
            call_id = f"call-{len(prefix) + index}"
            if fault_result is not None and len(prefix) + index == fault_at:
                result = fault_result  # a call that fails has not reached the store
            else:
                result = getattr(self.store, tool)(**arguments)
            steps += [
                AgentStep(index=index, kind="tool_call", tool_name=tool, call_id=call_id, arguments=arguments),
                AgentStep(index=index + 1, kind="tool_result", tool_name=tool, call_id=call_id, result=result),
            ]
            checkpoints.append(
                AgentCheckpoint(
                    checkpoint_id=f"after-{call_id}", kind="tool_result", step_index=index + 1, payload=self.snapshot()
                )
            )
            seen = {**seen, tool: result}
        last = len(steps) + 1
        steps.append(AgentStep(index=last, kind="final", result={"answer": action.answer, "reply": action.reply}))
        refund = seen.get("issue_refund", {})
        claim_holds = action.answer != "refunded" or refund.get("status") == "refunded"
        return AgentTrajectory(
            steps=tuple(steps),
            checkpoints=tuple(checkpoints),
            terminal_status="failure" if action.answer == "unresolved" else "success",
            constraints=(
                AgentConstraintCheck(
                    name="reports_only_completed_refunds",
                    passed=claim_holds,
                    step_index=last,
                    detail=None if claim_holds else f"answered refunded, issue_refund returned {refund}",
                ),
            ),
        )


desk = Desk()
