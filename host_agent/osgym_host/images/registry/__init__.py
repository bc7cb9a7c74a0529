"""Golden images in OCI image layouts: in a folder, or below a prefix of S3, GCS or a web server."""
