"""Runtimes: `base` is the contract, each sub-package one runtime that keeps it."""
