"""One module for each family, which defines `FAMILY`."""
