"""Health checks of machines: pure rules, and a monitor that applies them once a second."""

from osgym_host.runtimes.qemu.health import rules
from osgym_host.runtimes.qemu.health.monitor import HealthMonitor
from osgym_host.runtimes.qemu.health.rules import DeathCause, HealthOptions, Liveness

__all__ = ["DeathCause", "HealthMonitor", "HealthOptions", "Liveness", "rules"]
