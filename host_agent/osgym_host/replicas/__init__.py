"""Managers, pool and journal: they carry out what `osgym_host.core` decides."""
