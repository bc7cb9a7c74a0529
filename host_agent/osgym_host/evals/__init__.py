"""What `osgym eval` reads, keeps and shows. The episodes themselves are run by the SDK."""
