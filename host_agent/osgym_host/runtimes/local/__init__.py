"""Replicas as Linux namespaces over an overlay of the golden root file system, without a daemon.

The package stays importable without anything heavy: its zygote is forked for every replica.
"""
