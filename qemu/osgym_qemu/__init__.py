"""Virtual machines whose disk and RAM are copy-on-write clones of one snapshot."""
