"""Every setting of the host agent: read once, checked, documented.

Sources, the later one wins: defaults, the file (`config.yaml`), the environment (`OSGYM_*`), the
command line. An unknown key is an error that names it and what was probably meant; of the environment,
which other tools share, only a name that looks like a misspelt setting is one.
"""

from osgym_host.settings.documented import table
from osgym_host.settings.model import RuntimeSettings, Settings
from osgym_host.settings.sources import PREFIX, SettingsError, load

__all__ = ["PREFIX", "RuntimeSettings", "Settings", "SettingsError", "load", "table"]
