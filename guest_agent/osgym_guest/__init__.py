"""HTTP service inside every OSGym replica: acts on the desktop, waits for it and observes it."""

from osgym_protocol.version import __version__ as __version__
