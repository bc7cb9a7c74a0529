"""`osgym fleet`: planning, packing and operating a fleet."""
