"""The engine alone: no Dagster, no processes, seconds."""
