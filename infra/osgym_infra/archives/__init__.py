"""Archives that hosts fetch, made on this machine: the golden image and the host agent."""
