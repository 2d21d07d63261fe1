"""Verdicts counted, bounded and decided: metrics and slices, intervals, a rule's bar, the Gate, and advice."""
