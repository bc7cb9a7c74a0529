"""Dependencies of the SDK; the first depends on where it is built, see `build_backend`."""

from setuptools import setup

from build_backend import protocol

setup(install_requires=[protocol, "httpx>=0.27", "h11>=0.14", "pillow>=10"])
