"""Small web applications that tasks serve inside the desktop, on Python's standard library alone."""
