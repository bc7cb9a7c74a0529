"""The service inside every OSGym replica."""
