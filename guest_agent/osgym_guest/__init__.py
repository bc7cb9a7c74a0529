"""The service inside every OSGym replica."""

from osgym_protocol.version import __version__ as __version__
