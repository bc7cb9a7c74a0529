"""Providers of hosts, one package each."""
