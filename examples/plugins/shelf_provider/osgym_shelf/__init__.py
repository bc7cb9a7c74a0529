"""A provider of hosts: machines of a shelf in a lab, which a `shelf` command starts and enters."""
