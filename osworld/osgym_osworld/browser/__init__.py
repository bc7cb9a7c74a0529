"""The browser of a replica, for tasks: its tabs by the debugging protocol, its profile by its files.

Everything that comes from it is the policy's: bounded, under deadlines, and read as text.
"""
