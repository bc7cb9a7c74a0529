"""Making golden snapshots: boot a disk image, warm it up, freeze it, and try the result."""
