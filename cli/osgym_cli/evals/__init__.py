"""What `osgym eval run` reads, keeps and shows. The episodes themselves are run by the SDK."""
