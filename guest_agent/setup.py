"""Builds the native core by CPython's limited API: one wheel serves every Python from 3.10 on."""

import hashlib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

SOURCES = ["module.c", "x11.c", "frame.c", "png.c", "procs.c", "settle.c"]
EXECUTABLES = {
    "osgym-identity": ["identity.c"],
    "osgym-session": [
        "session.c",
        "session_machine.c",
        "session_namespaces.c",
        "session_process.c",
        "session_server.c",
        "session_starts.c",
    ],
}
CFLAGS = ["-std=gnu11", "-Wall", "-Wextra", "-g0"]
LDFLAGS = ["-Wl,-s", "-Wl,--build-id=none"]

SOURCE_DIGESTS = "native.sha256"
"""File of the wheel with the digests of what its compiled parts are made from: a host that bakes images can
tell from it, without this folder, whether an image has this guest agent."""


class LimitedApiWheel(bdist_wheel):
    """Tags the wheel cp310-abi3."""

    def finalize_options(self) -> None:
        """Set the lowest version that the wheel is for."""
        super().finalize_options()
        self.py_limited_api = "cp310"


class WithSourceDigests(build_py):
    """Writes `native.sha256`, in the form of sha256sum, into the wheel."""

    def run(self) -> None:
        """Build everything."""
        super().run()
        if self.editable_mode:
            return
        sources = [Path("pyproject.toml"), Path("setup.py"), *sorted(Path("native").iterdir())]
        lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path}\n" for path in sources]
        (Path(self.build_lib) / "osgym_guest" / SOURCE_DIGESTS).write_text("".join(lines))


class WithHelper(build_ext):
    """Builds `osgym-identity`, `osgym-session` and the preloaded `osgym-view.so` beside the native core."""

    def run(self) -> None:
        """Build everything."""
        super().run()
        folder = Path(self.get_ext_fullpath("osgym_guest._native")).parent
        for name, sources in EXECUTABLES.items():
            objects = self.compiler.compile(
                [f"native/{source}" for source in sources],
                output_dir=self.build_temp,
                extra_postargs=["-O2", *CFLAGS],
            )
            self.compiler.link_executable(
                # Symbols are looked up once, in the template, and not at their first use in every clone.
                objects,
                name,
                output_dir=str(folder),
                extra_postargs=[*LDFLAGS, "-Wl,-z,now"],
            )
        objects = self.compiler.compile(
            ["native/view.c", "native/view_waits.c"],
            output_dir=self.build_temp,
            extra_postargs=["-O2", "-fPIC", *CFLAGS],
        )
        self.compiler.link_shared_object(
            objects, str(folder / "osgym-view.so"), extra_postargs=[*LDFLAGS, "-Wl,-z,now"]
        )


setup(
    cmdclass={"bdist_wheel": LimitedApiWheel, "build_ext": WithHelper, "build_py": WithSourceDigests},
    ext_modules=[
        Extension(
            "osgym_guest._native",
            sources=[f"native/{name}" for name in SOURCES],
            depends=["native/og.h"],
            libraries=["xcb", "xcb-damage", "xcb-xtest", "xcb-xfixes", "xcb-shm", "isal"],
            extra_compile_args=["-O3", *CFLAGS],
            extra_link_args=LDFLAGS,
            py_limited_api=True,
        )
    ],
)
