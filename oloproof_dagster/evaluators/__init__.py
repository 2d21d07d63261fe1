"""Evidence in, verdicts out: one module an evaluator, pure functions of what is recorded of a case."""
