"""A recorded run, read: tables as frames, cases as panels, documents for JSON and markdown. Evaluates nothing."""
