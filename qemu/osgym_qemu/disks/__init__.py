"""Bootable disk images: made from golden images or imported, and the copies that machines write to."""
