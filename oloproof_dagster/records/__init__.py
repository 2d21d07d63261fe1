"""What passes through the walk of one case: tables and their rows, trajectories, compared values, reasons, keys."""
