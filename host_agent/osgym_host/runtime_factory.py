"""Image and runtime of the settings, and the clearing of leftovers, by the registry of runtimes."""

from __future__ import annotations

from osgym_host.images.derived import DerivedImages
from osgym_host.images.errors import ImageError
from osgym_host.runtime_registry import load_runtime_kind, runtime_names
from osgym_host.runtimes.base import Runtime, RuntimeUnsupported, StartReport
from osgym_host.runtimes.kind import ImageRef, RuntimeKind
from osgym_host.settings import Settings
from osgym_protocol.plugins import BrokenPlugin, PluginGroup


def runtime_kind(name: str) -> RuntimeKind:
    """Return the kind of runtime of this name; only that runtime is imported.

    Raises:
        PluginError: It is not installed, its import fails, or its entry point names something else.
    """
    kind = load_runtime_kind(name)
    if not isinstance(kind, RuntimeKind):
        raise BrokenPlugin(
            PluginGroup.RUNTIMES, name, f"the runtime {name!r} registers {kind!r}, not a RuntimeKind"
        )
    return kind


def derived_images() -> list[DerivedImages]:
    """Return the images that the installed runtimes make of golden images; every runtime is imported.

    Raises:
        PluginError: A runtime cannot be imported, or its entry point names something else.
    """
    return [found for name in runtime_names() if (found := runtime_kind(name).derived_images()) is not None]


def find_images(settings: Settings) -> list[ImageRef]:
    """Return all images that the settings name, each once, the default one first.

    Raises:
        ImageError: The store lacks one, it does not fit the settings, or the runtime serves only one.
    """
    kind = runtime_kind(settings.runtime)
    if settings.images and not kind.serves_many:
        raise ImageError(
            f"a host with the runtime {settings.runtime} serves one image",
            "leave the setting `images` empty, and name that image in `image`",
        )
    names = (settings.image, *settings.images)
    found = [kind.find_image(settings.model_copy(update={"image": name})) for name in names]
    return list({ref.image.digest: ref for ref in reversed(found)}.values())[::-1]


def find_image(settings: Settings) -> ImageRef:
    """Return the image that the settings name.

    Raises:
        ImageError: The store lacks it, or it does not fit the settings; the message says what to do.
    """
    return runtime_kind(settings.runtime).find_image(settings)


def make_runtime(settings: Settings, image: ImageRef | None = None) -> Runtime:
    """Make the runtime of the settings. Nothing is touched before its `start`.

    Args:
        image: Image of most replicas; None where the runtime only clears leftovers.

    Raises:
        RuntimeUnsupported: The settings want a proxy that the runtime does not have.
    """
    kind = runtime_kind(settings.runtime)
    if image is not None and not kind.has_proxy and (settings.web != "off" or settings.egress_by == "proxy"):
        raise RuntimeUnsupported(
            f"replicas of {settings.runtime} have no proxy "
            f"(web {settings.web}, egress_by {settings.egress_by}).",
            remedy="Use the runtime local, or leave web at off and egress_by at auto.",
        )
    return kind.make(settings, image)


async def clear_leftovers(settings: Settings) -> StartReport:
    """Remove leftovers of killed host agents of this instance, whatever their runtimes.

    Raises:
        DataDirBusy: A live host agent holds the directory.
        RuntimeFault: Something cannot be removed.
    """
    reaped_replicas = reaped_processes = 0
    for name in _runtimes_left(settings):
        runtime = runtime_kind(name).make(settings, None)
        report = await runtime.start()
        await runtime.stop()
        reaped_replicas += report.reaped_replicas + len(report.adoptable)
        reaped_processes += report.reaped_processes + len(report.adoptable)
    return StartReport(reaped_replicas=reaped_replicas, reaped_processes=reaped_processes)


async def clear_other_leftovers(settings: Settings) -> None:
    """Remove leftovers of a killed host agent of this instance that had another runtime.

    Raises:
        DataDirBusy: A live host agent holds the directory.
        RuntimeFault: Something cannot be removed.
    """
    if any(name != settings.runtime for name in _runtimes_left(settings)):
        await clear_leftovers(settings)


def _runtimes_left(settings: Settings) -> list[str]:
    folder = settings.data_dir / "run" / settings.instance
    if not folder.is_dir():
        return []
    return [name for name in runtime_names() if runtime_kind(name).has_leftovers(folder)]
