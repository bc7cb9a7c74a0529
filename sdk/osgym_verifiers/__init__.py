"""The name that verifiers finds OSGym's desktops by: ``--env.taskset.id osgym-verifiers``.

verifiers looks its plug-ins up as modules at the top level; what they are is in
:mod:`osgym_sdk.integrations.verifiers`.
"""

from __future__ import annotations

from osgym_sdk.integrations.verifiers import DesktopEnv, DesktopTaskset

__all__ = ["DesktopEnv", "DesktopTaskset"]
