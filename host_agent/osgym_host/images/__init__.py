"""Golden images: bake them from Debian packages, keep them by content digest, look them up."""
