"""Client of OSGym."""
