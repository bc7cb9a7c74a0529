"""The resource provider's process, started by the engine. Its work is in `osgym_infra.resources`."""

from __future__ import annotations

import sys

from osgym_infra.resources.server import main

main(sys.argv[1:])
