"""What `osgym settle calibrate` does: from an image's applications to a recording, and to horizons."""
