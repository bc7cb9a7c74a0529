"""Builds the native core by CPython's limited API: one wheel serves every Python from 3.10 on."""

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel

SOURCES = ["module.c", "x11.c", "frame.c", "png.c", "procs.c", "settle.c"]


class LimitedApiWheel(bdist_wheel):
    """Tags the wheel cp310-abi3."""

    def finalize_options(self) -> None:
        """Set the lowest version that the wheel is for."""
        super().finalize_options()
        self.py_limited_api = "cp310"


setup(
    cmdclass={"bdist_wheel": LimitedApiWheel},
    ext_modules=[
        Extension(
            "osgym_guest._native",
            sources=[f"native/{name}" for name in SOURCES],
            depends=["native/og.h"],
            libraries=["xcb", "xcb-damage", "xcb-xtest", "xcb-xfixes", "xcb-shm", "isal"],
            extra_compile_args=["-O3", "-std=gnu11", "-Wall", "-Wextra", "-g0"],
            extra_link_args=["-Wl,-s"],
            py_limited_api=True,
        )
    ],
)
