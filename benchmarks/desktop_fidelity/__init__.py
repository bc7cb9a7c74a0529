"""Windows and clipboards of a desktop, compared with a user's expectations of a real one."""
