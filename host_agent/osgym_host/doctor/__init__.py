"""Doctor: finds out by trying what this machine can run, and how to get what is missing."""
