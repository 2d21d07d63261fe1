"""The user's agent and its world: what they implement, how they are imported, and one case around one sandbox."""
