"""Catalogue of host types: data in TOML with source and date, and its loader."""
