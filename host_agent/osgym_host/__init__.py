"""The per-host service of OSGym."""
