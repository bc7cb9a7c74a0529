"""Readers and comparisons of document, picture and sound formats, which several metrics use."""
