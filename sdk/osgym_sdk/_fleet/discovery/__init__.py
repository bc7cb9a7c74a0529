"""Sources that list the hosts of a fleet (a file, tags of instances, a name), and the watch over them."""
