"""One QEMU process: its arguments, its monitor, its launcher and its record."""
