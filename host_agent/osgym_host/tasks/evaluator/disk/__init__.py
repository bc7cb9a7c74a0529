"""Files of a virtual machine, read from the layers of its disk inside the confined process.

The guest wrote every byte of it, so it is never mounted and never touched by a privileged process: a kernel
or a tool that trusts a file system is what a hostile one attacks. Pure Python reads what one path needs.
"""
