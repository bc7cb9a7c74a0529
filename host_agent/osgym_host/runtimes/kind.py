"""What the rest of the host agent needs to know of a kind of runtime; each package has one as `KIND`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from osgym_host.doctor.result import Checks
from osgym_host.runtimes.base import ImageLike, Runtime, Screen
from osgym_host.settings import RuntimeSettings, Settings


@dataclass(frozen=True, slots=True)
class ImageRef:
    """What the service says about its golden image.

    Attributes:
        flavor: Its name for people: a flavor, or `<disk>@<snapshot>`.
        screen: Size of its desktops, where that is fixed.
        warm_apps: What runs in each clone of it already, as in the setting of that name.
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
    """

    settings_model: type[RuntimeSettings] = RuntimeSettings
    has_proxy: bool = False

    @abstractmethod
    def find_image(self, settings: Settings) -> ImageRef:
        """Look up what the settings say is to be cloned.

        Raises:
            ImageError: It is not in the store, or not what the settings want; the message says what to do.
        """

    @abstractmethod
    def make(self, settings: Settings, image: ImageRef | None) -> Runtime:
        """Make the runtime of the settings. Nothing is touched yet.

        Args:
            image: What will mostly be cloned; None where the runtime is only to clear leftovers.
        """

    def has_leftovers(self, run_folder: Path) -> bool:
        """Say whether a killed host agent with this runtime left something in the instance's folder."""
        return False

    def replica_ram_mib(self, settings: Settings, image: ImageRef) -> int:
        """Return the memory cap of one replica."""
        return settings.replica_ram_mib

    def checks(self) -> Checks:
        """Return the doctor's checks of what this runtime needs; of the default runtime, hosts need them."""
        return ()

    def extra_checks(self) -> Checks:
        """Return the doctor's checks of what this runtime can do without."""
        return ()

    async def check_image(self, settings: Settings, image: ImageRef) -> None:
        """Find out whether this host can run the image.

        Raises:
            RuntimeUnsupported: The host cannot run it; the message says why and what to do.
        """
        return
