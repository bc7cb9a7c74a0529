"""Errors of golden images, each with a remedy."""

from __future__ import annotations

from osgym_host.errors import OsgymHostError


class ImageError(OsgymHostError):
    """A golden image could not be baked, found or removed.

    Attributes:
        hint: Remedy, or an empty string.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class ImageNotFound(ImageError):
    """No image in the store has this flavor or digest."""


class DefinitionError(ImageError):
    """The image definition is missing or contradicts itself."""


class BakeError(ImageError):
    """A stage of a bake failed.

    Attributes:
        log_tail: Last lines of the failing program.
    """

    def __init__(self, stage: str, message: str, log_tail: str = "", hint: str = "") -> None:
        super().__init__(f"{stage}: {message}", hint)
        self.stage = stage
        self.log_tail = log_tail


class NamespaceUnavailable(ImageError):
    """This machine, or this user, cannot make the user namespace that an image needs."""
