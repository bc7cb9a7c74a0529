"""Errors of moving images, with stable codes."""

from __future__ import annotations

from enum import StrEnum

from osgym_host.images.errors import ImageError


class RegistryCode(StrEnum):
    """Stable code of an error; the first word of its message."""

    NOT_FOUND = "not_found"
    UNREACHABLE = "unreachable"
    UNSUPPORTED_PLACE = "unsupported_place"
    UNSUPPORTED_LAYOUT = "unsupported_layout"
    UNSUPPORTED_FILE = "unsupported_file"
    DIGEST_MISMATCH = "digest_mismatch"
    TOO_LARGE = "too_large"
    UNSAFE_PATH = "unsafe_path"
    MALFORMED_LAYER = "malformed_layer"


class RegistryError(ImageError):
    """An image could not be pushed or pulled; the local store is unchanged.

    Attributes:
        code: Stable code.
    """

    def __init__(self, code: RegistryCode, message: str, hint: str = "") -> None:
        super().__init__(f"{code}: {message}", hint)
        self.code = code
