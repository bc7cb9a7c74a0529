"""QEMU in a runner container: the image it runs in, the entry inside, the launcher outside."""
