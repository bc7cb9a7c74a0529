"""Golden images: baked from Debian packages, stored by content digest, found by name."""
