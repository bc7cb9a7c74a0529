"""The local runtime as the registry knows it."""

from __future__ import annotations

from pathlib import Path

from osgym_host.images.store import ImageStore
from osgym_host.runtimes.base import Runtime
from osgym_host.runtimes.kind import ImageRef, RuntimeKind
from osgym_host.runtimes.local.instance import ZYGOTE_RECORD
from osgym_host.runtimes.local.runtime import LocalRuntime
from osgym_host.settings import Settings


class LocalKind(RuntimeKind):
    """Replicas as namespaces of this machine's kernel."""

    def find_image(self, settings: Settings) -> ImageRef:
        """Look up the flavor, or the digest."""
        image = ImageStore(settings.data_dir).resolve(settings.image)
        return ImageRef(image, image.flavor)

    def make(self, settings: Settings, image: ImageRef | None) -> Runtime:
        """Make the runtime."""
        return LocalRuntime(settings.data_dir, settings.instance)

    def has_leftovers(self, run_folder: Path) -> bool:
        """Say whether there are replicas, or a zygote."""
        return any((run_folder / "replicas").glob("*")) or (run_folder / ZYGOTE_RECORD).exists()


KIND = LocalKind()
