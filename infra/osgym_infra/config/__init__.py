"""The configuration of a stack: its keys, how each is read, and the checked result."""
