"""Commands that this distribution adds to `osgym image`."""
