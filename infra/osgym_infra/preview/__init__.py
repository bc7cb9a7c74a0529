"""Preview of a stack without an account."""
