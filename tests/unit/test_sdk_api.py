"""What the package exports, and what it costs to import it."""

from __future__ import annotations

import subprocess
import sys

import osgym_sdk
from osgym_sdk import _exceptions, wire


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_api_is_what_all_says() -> None:
    """Every name of __all__ is there, sorted."""
    assert osgym_sdk.__all__ == sorted(osgym_sdk.__all__)
    for name in osgym_sdk.__all__:
        assert getattr(osgym_sdk, name).__name__ if name != "Policy" else osgym_sdk.Policy


def test_all_errors_are_exported_and_have_one_root() -> None:
    """Whoever catches OSGymError catches them all."""
    for name, thing in vars(_exceptions).items():
        if isinstance(thing, type) and issubclass(thing, Exception):
            assert issubclass(thing, osgym_sdk.OSGymError)
            assert name in osgym_sdk.__all__
            assert name in (_exceptions.__doc__ or "")


def test_every_error_code_of_the_wire_has_its_exception() -> None:
    """No code of v1 falls through to the fallback."""
    assert set(_exceptions._BY_CODE) == set(wire.ErrorCode)


def test_import_is_light() -> None:
    """Importing the clients loads neither Pillow nor anything heavy, and not the host or the guest."""
    heavy = ["PIL", "numpy", "fastapi", "starlette", "pydantic", "uvicorn", "osgym_host", "osgym_guest", "h2"]
    code = f"import sys, osgym_sdk; osgym_sdk.Client; print([m for m in {heavy!r} if m in sys.modules])"
    assert _python(code) == "[]"


def test_the_protocol_needs_the_standard_library_only() -> None:
    """The host imports the messages without paying for httpx."""
    code = (
        "import sys, osgym_protocol.host_api; print([m for m in ('httpx', 'osgym_sdk') if m in sys.modules])"
    )
    assert _python(code) == "[]"


def test_import_is_quick() -> None:
    """The clients cost about as much again as httpx alone, a fifth of a second.

    Compared in processor time and in turns, so that neither the machine's speed nor its load matters.
    """
    code = "import time; import {}; print(time.process_time())"
    clients = "osgym_sdk; osgym_sdk.Client; osgym_sdk.AsyncClient"
    turns = [(float(_python(code.format("httpx"))), float(_python(code.format(clients)))) for _ in range(5)]
    httpx_s, clients_s = (min(times) for times in zip(*turns, strict=True))
    assert clients_s < 3 * httpx_s, turns


def test_errors_survive_pickling() -> None:
    """Batch frameworks send exceptions between processes."""
    import pickle

    error = osgym_sdk.EpisodeLost("gone", details={"cause": "oom"}, host="http://h", episode_id="e1")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.cause, copy.host, str(copy)) == (type(error), "oom", "http://h", str(error))
