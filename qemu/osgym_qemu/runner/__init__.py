"""Launchers of QEMU: as a bare process of an unprivileged user, or in a runner container."""
