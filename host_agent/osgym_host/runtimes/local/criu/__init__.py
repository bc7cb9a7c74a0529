"""Branch points of namespaces by CRIU, where the host has it; nothing here is CRIU's own."""
