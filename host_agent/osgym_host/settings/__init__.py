"""Settings of the host agent: read once, checked, documented.

The later source wins: defaults, the file (`config.yaml`), the environment (`OSGYM_*`), the command line. An
unknown key is an error that names it and the setting that was probably meant. Other tools share the
environment, so only a variable whose name looks like a misspelt setting is an error.
"""

from osgym_host.settings.model import RuntimeSettings, Settings
from osgym_host.settings.sources import PREFIX, SettingsError, load, table

__all__ = ["PREFIX", "RuntimeSettings", "Settings", "SettingsError", "load", "table"]
