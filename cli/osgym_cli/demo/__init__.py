"""`osgym demo`: every task by its oracle and by chance, on real desktops, through the public client."""
