"""Golden images that a host serves, and the choice of one for an episode."""

from __future__ import annotations

from collections.abc import Sequence

from osgym_host.errors import ServiceError
from osgym_host.tasks.schema import Task
from osgym_protocol.codes import ErrorCode
from osgym_protocol.host_api import HostImage


class ServedImages:
    """Images of one host, in the order of its settings; the first is the default."""

    def __init__(self, images: Sequence[HostImage]) -> None:
        self.all = tuple(images)
        self.default = self.all[0]

    def __contains__(self, digest: str) -> bool:
        return any(image.digest == digest for image in self.all)

    def find(self, name: str) -> HostImage | None:
        """Return the image of this flavor or digest, or None."""
        return next((image for image in self.all if name in (image.flavor, image.digest)), None)

    def of_episode(self, asked: str | None, task: Task | None) -> HostImage:
        """Return the image that the client asks for, or else the task, or else the default one.

        A task asks by `osgym.image`. OSWorld's `snapshot` counts where an image has that name; its files name
        snapshots of virtual machines that need not exist here.

        Raises:
            ServiceError: `unknown_image`; its details name the images that are served.
        """
        name = asked or (task.osgym.image if task is not None else None)
        if name is None:
            named = None if task is None or task.snapshot is None else self.find(task.snapshot)
            return named or self.default
        found = self.find(name)
        if found is None:
            served = ", ".join(f"{image.flavor} ({image.digest[:16]})" for image in self.all)
            text = f"This host does not serve the image {name!r}, but {served}: use a host that serves it."
            raise ServiceError(
                ErrorCode.UNKNOWN_IMAGE,
                text,
                {"image": self.default.to_dict(), "images": [image.to_dict() for image in self.all]},
            )
        return found
