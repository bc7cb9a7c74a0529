"""Kind of a runtime: makes the runtime and its image from settings. Entry points of `osgym.runtimes` name
one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from osgym_host.doctor.result import Checks
from osgym_host.images.derived import DerivedImages
from osgym_host.runtimes.base import ImageLike, Runtime, Screen
from osgym_host.settings import RuntimeSettings, Settings


@dataclass(frozen=True, slots=True)
class ImageRef:
    """Golden image of a service, with its presentation.

    Attributes:
        flavor: Name for people: a flavor, or `<disk>@<snapshot>`.
        screen: Size of its desktops; None where the settings decide.
        warm_apps: Programs that run in each clone already, as in the setting of that name.
    """

    image: ImageLike
    flavor: str
    screen: Screen | None = None
    warm_apps: Sequence[str] = ()


class RuntimeKind(ABC):
    """From settings to an image and a runtime. It keeps no state.

    Attributes:
        settings_model: Settings of this runtime only. Users write them below its name: `NAME.setting`.
        has_proxy: Replicas can connect by the host's proxy, as the settings `web` and `egress_by: proxy` ask.
        serves_many: Replicas of one host can be clones of several images, as the setting `images` asks.
        rests_by_default: `rest: auto` lets replicas rest where the host has compressed swap.
    """

    settings_model: type[RuntimeSettings] = RuntimeSettings
    has_proxy: bool = False
    serves_many: bool = False
    rests_by_default: bool = False

    @abstractmethod
    def find_image(self, settings: Settings) -> ImageRef:
        """Return the image that the settings name.

        Raises:
            ImageError: The store lacks it, or it does not fit the settings; the message says what to do.
        """

    @abstractmethod
    def make(self, settings: Settings, image: ImageRef | None) -> Runtime:
        """Make the runtime of the settings. Nothing is touched before its `start`.

        Args:
            image: Image of most replicas; None where the runtime only clears leftovers.
        """

    def has_leftovers(self, run_folder: Path) -> bool:
        """Return whether a killed host agent with this runtime left anything in the instance's folder."""
        return False

    def replica_ram_mib(self, settings: Settings, image: ImageRef) -> int:
        """Return the memory cap of one replica in MiB."""
        return settings.replica_ram_mib

    def checks(self) -> Checks:
        """Return the doctor's checks of what this runtime needs; of the default runtime, hosts need them."""
        return ()

    def extra_checks(self) -> Checks:
        """Return the doctor's checks of what this runtime can do without."""
        return ()

    def derived_images(self) -> DerivedImages | None:
        """Return what this runtime makes of golden images; None where it clones these themselves."""
        return None

    async def check_image(self, settings: Settings, image: ImageRef) -> None:
        """Check that this host can run the image.

        Raises:
            RuntimeUnsupported: The host cannot run it; the message says why and what to do.
        """
        return
