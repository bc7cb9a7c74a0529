"""Commands that administer this machine: one module for each."""
