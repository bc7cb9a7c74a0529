"""Where the hosts of a fleet are listed: a file, tags of instances, a name; and the watch over it."""
