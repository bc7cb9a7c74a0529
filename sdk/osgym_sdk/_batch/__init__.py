"""Many episodes played by a policy: batches, groups, steps of many episodes in one request."""
