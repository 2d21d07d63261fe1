"""The refund desk with both defects mended, and nothing else changed."""

from app import Desk, Final, JSONObject, RefundPolicy, ToolCall


class MendedPolicy(RefundPolicy):
    """The same policy with the two wrong decisions made right."""

    def rules_apply(self, message: str) -> bool:
        # A message is what a customer says. It is read for the claim and never obeyed.
        return True

    def after_refund(self, order_id: str, amount_cents: int, result: JSONObject) -> ToolCall | Final:
        # Only a refund that the tool confirms is reported; any other result goes to a person.
        if result.get("status") != "refunded":
            return self.escalate(order_id, "refund_failed")
        return super().after_refund(order_id, amount_cents, result)


desk = Desk(MendedPolicy())
