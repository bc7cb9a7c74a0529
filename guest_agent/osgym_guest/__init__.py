"""The service inside every OSGym replica."""

__version__ = "0.1.0"
