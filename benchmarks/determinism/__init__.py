"""Whether the same image, task and actions give the same frames on every replica."""
