"""The accessibility tree, read in a process of its own that lives only while somebody asks.

The agent never imports this package: `osgym_guest.osworld.helper` starts ``python3 -I -m
osgym_guest.osworld.a11y`` at the first request, keeps it for a minute, and lets it go, so a replica
whose client never looks at the tree does not pay for it.
"""
