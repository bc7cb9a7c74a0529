"""Metrics that need nothing but the host. More come with other distributions, such as osgym-osworld."""
