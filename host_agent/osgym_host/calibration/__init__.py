"""Work of `osgym settle calibrate`: from an image's applications to a recording, and to horizons."""
