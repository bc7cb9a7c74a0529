"""One module for each family; each has `FAMILY`."""
