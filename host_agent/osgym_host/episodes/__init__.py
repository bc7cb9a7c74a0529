"""Episodes: leases on replicas, steps, evaluation, trajectories."""
