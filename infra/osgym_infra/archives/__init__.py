"""What hosts fetch, made on this machine: the golden image and the host agent, each packed as one file."""
