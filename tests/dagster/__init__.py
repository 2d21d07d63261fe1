"""Assets, jobs, sensors, stores, on real instances."""
