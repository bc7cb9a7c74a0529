"""Links to hosts: commands and files over ssh, on this machine, or through a program of a cloud."""
