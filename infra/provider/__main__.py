"""The resource provider's process, started by the engine. All it does is in `osgym_infra.hosts.provider`."""

from __future__ import annotations

import sys

from osgym_infra.hosts.server import main

main(sys.argv[1:])
