"""Image and agent as files of this machine, which hosts that need them are sent."""

from osgym_infra.components.golden import GoldenImage

__all__ = ["GoldenImage"]
