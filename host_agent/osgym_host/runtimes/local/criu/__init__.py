"""Branch points of namespaces, made by the host's CRIU."""
