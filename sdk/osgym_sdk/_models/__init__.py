"""Values that clients return: observations, trajectories, results."""
