"""What this machine can run, found out by trying, and how to get what is missing."""
