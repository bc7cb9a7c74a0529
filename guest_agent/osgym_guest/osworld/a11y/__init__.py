"""Accessibility tree, read in a process of its own that lives only while clients ask for it.

The agent never imports this package: `osgym_guest.osworld.helper` starts ``python3 -I -m
osgym_guest.osworld.a11y`` at the first request and ends it after a minute without one, so a replica whose
client never reads the tree does not pay for it.
"""
