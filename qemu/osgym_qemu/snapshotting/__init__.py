"""From a disk image to a golden snapshot: boot, prepare the desktop, come to rest, freeze, try, publish."""
