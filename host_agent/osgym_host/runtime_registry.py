"""Where the runtimes are: the setting `runtime`, the doctor and the runtime factory read this.

A new runtime is a package and a line in `osgym_protocol.runtimes`. The package has a module `kind` with a
`KIND` (`runtimes.kind.RuntimeKind`) and a module `doctor` with `CHECKS`, which say whether this machine can
run it, and `EXTRA_CHECKS` for what it can do without. Nothing of a runtime is imported before it is asked
for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from osgym_protocol.runtimes import RuntimeName

RUNTIMES = {name.value: f"osgym_host.runtimes.{name}" for name in RuntimeName}

if TYPE_CHECKING:
    RuntimeSetting = str
else:
    RuntimeSetting = Literal[tuple(RUNTIMES)]
"""One of their names, as pydantic checks it and documents name it."""
