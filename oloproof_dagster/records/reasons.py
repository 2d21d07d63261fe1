"""Every reason code: why a verdict is what it is, why a rule was decided so, why the Gate blocks.

One enumeration each, with the sentence that code, documentation and terminal show; nothing else spells a code out.
"""

from enum import StrEnum


class _Reason(StrEnum):
    meaning: str

    def __new__(cls, code: str, meaning: str = "") -> "_Reason":
        member = str.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member


class VerdictReason(_Reason):
    """Why a verdict is missing, not applicable, or (fault replays) passed or failed."""

    METAMORPHIC_COPY = "metamorphic_copy", "a derived case is compared with its source and not counted again"
    CASE_NOT_SELECTED = "case_not_selected", "the evaluator's `cases` leave this case out"
    EXECUTION_ERROR = "execution_error", "the system raised, left something that is not JSON, or ended its process"
    EXECUTION_TIMEOUT = "execution_timeout", "the system did not finish in time"
    SYSTEM_VERSION_NOT_LOADED = (
        "system_version_not_loaded",
        "nothing is recorded for this version, which is not the one loaded now",
    )
    NO_EXPECTED_STATE = "no_expected_state", "the case expects no state"
    NO_INITIAL_STATE = "no_initial_state", "the case declares no initial state"
    NO_EXPECTED = "no_expected", "the case does not have the expected field"
    ENVIRONMENT_STATE_UNAVAILABLE = "environment_state_unavailable", "no state was recorded after the case"
    EXPECTED_PATH_ABSENT = "expected_path_absent", "the expected state lacks a path that is to be compared"
    INITIAL_PATH_ABSENT = "initial_path_absent", "the initial state lacks a path that is to stay unchanged"
    PATH_AMBIGUOUS = "path_ambiguous", "several elements of a list are what the path picks one of"
    NO_OUTPUT_FIELD = "no_output_field", "the output lacks the field that is to be compared"
    AGENT_TRAJECTORY_UNAVAILABLE = "agent_trajectory_unavailable", "the agent recorded no trajectory"
    TRAJECTORY_TRUNCATED = "trajectory_truncated", "the recording ends before what it was asked about"
    EVALUATOR_ERROR = "evaluator_error", "the check itself raised, or returned no verdict"
    NOT_A_METAMORPHIC_PAIR = "not_a_metamorphic_pair", "a source case has no source to be compared with"
    ANOTHER_TRANSFORM = "another_transform", "the case was derived by another transform"
    METAMORPHIC_SOURCE_MISSING = "metamorphic_source_missing", "the source case's own execution failed"
    NO_ACTION_TAKEN = "no_action_taken", "neither side of the pair called a tool or changed its world"
    FAULT_TARGET_NOT_CALLED = "fault_target_not_called", "the agent never made the call that is to fail"
    NO_CHECKPOINT_RECORDED = "no_checkpoint_recorded", "no checkpoint stands before the call that is to fail"
    REPLAY_ECHOED = (
        "replay_echoed_the_recorded_trajectory",
        "the control replay returned the recording instead of a continuation",
    )
    CONTROL_DIVERGED = "control_diverged", "the replay without a fault did not do what the recording did"
    REPLAY_DIVERGED_BEFORE_FAULT = (
        "replay_diverged_before_fault",
        "the fault replay made other calls before the one that was to fail",
    )
    REPLAY_DID_NOT_INJECT = (
        "replay_did_not_inject_the_fault",
        "the named call was not made, or its result is not the fault's",
    )
    REPLAY_ERROR = "replay_error", "the replay raised"
    REPLAY_TIMEOUT = "replay_timeout", "the replay did not finish in time"
    FAULT_OUTCOME_UNKNOWN = "fault_outcome_unknown", "the replay does not say how it ended"
    EXPECTED_STATE_UNAVAILABLE = (
        "expected_state_unavailable",
        "the case expects no state that the one after the replay could be compared with",
    )
    CLAIMED_SUCCESS = "claimed_success", "after the fault the agent ended in success, and the state does not show it"
    CHECK_FAILED = "check_failed", "the evaluator's own check says no to what the agent did after the fault"
    ACTED_WRONGLY = "acted_wrongly", "after the fault the agent broke a constraint or ended in failure"
    ESCALATED = "escalated", "after the fault the agent called a tool that hands the case to a person"
    RECOVERED = "recovered", "after the fault the agent still ended in success"


_VERDICT_MEANINGS = {reason.value: reason.meaning for reason in VerdictReason}


def meaning_of(code: str | None) -> str:
    """The sentence of a verdict's reason code; a python check's own word is its sentence."""
    return _VERDICT_MEANINGS.get(code or "", code or "")


class DecisionReason(_Reason):
    """Why a rule was decided as it was."""

    TRANSFORM_NOT_CHECKED = (
        "transform_not_checked",
        "people's labels do not show yet that the transform keeps the meaning",
    )
    POLICY_REQUIRES_REVIEW = "policy_requires_review", "the policy leaves this rule to a person"
    APPROVED_BY_REVIEW = "approved_by_review", "a person approved the rule on this evidence"
    REJECTED_BY_REVIEW = "rejected_by_review", "a person rejected the rule on this evidence"
    APPROXIMATE_METHOD_NOT_PERMITTED = (
        "approximate_method_not_permitted",
        "the interval is of clustered verdicts and the policy does not allow approximate methods",
    )
    NO_OBSERVATIONS = "no_observations", "not one verdict was observed"
    INSUFFICIENT_CLUSTERS = "insufficient_clusters", "fewer independent clusters than the policy asks for"
    MISSINGNESS_EXCEEDS_POLICY = "missingness_exceeds_policy", "a larger share is missing than the rule accepts"
    TOO_FEW_ELIGIBLE = "too_few_eligible", "fewer eligible verdicts than the rule counts failures among"
    INTERVAL_UNAVAILABLE = "interval_unavailable", "there is no interval to decide on"
    LOWER_BOUND_MEETS_MINIMUM = "lower_bound_meets_minimum", "the whole interval lies at or above the bar"
    UPPER_BOUND_BELOW_MINIMUM = "upper_bound_below_minimum", "the whole interval lies below the bar"
    UPPER_BOUND_MEETS_MAXIMUM = "upper_bound_meets_maximum", "the whole interval lies at or below the bar"
    LOWER_BOUND_ABOVE_MAXIMUM = "lower_bound_above_maximum", "the whole interval lies above the bar"
    INTERVAL_OVERLAPS_THRESHOLD = "interval_overlaps_threshold", "the bar lies inside the interval"
    OBSERVED_FAILURES_EXCEED_LIMIT = "observed_failures_exceed_limit", "more failures than the rule accepts"
    OBSERVED_FAILURES_WITHIN_LIMIT = (
        "observed_failures_within_limit",
        "failures stay within the limit even if every missing verdict failed",
    )
    MISSING_COULD_CHANGE_OUTCOME = "missing_could_change_outcome", "missing verdicts could break the limit"


class GateReason(_Reason):
    """Why the Gate blocks beside the states of its rules."""

    PARTIAL_RUN = "partial_run", "some case of the suite has no recorded execution"
    MISSING_EVIDENCE = "missing_evidence", "a rule has no observation, or more is missing than it accepts"
