"""`osgym fleet`: what a fleet costs, what its hosts fetch, and the hosts themselves operated."""
