"""``/wallpaper`` and ``/setup/change_wallpaper``, for desktops drawn by pcmanfm or by GNOME's settings."""

from __future__ import annotations

from pathlib import Path

from osgym_guest.http import Request, Response
from osgym_guest.osworld import error, fields
from osgym_guest.osworld.context import OsworldContext
from osgym_guest.osworld.process import CommandTimeoutError

TIMEOUT_S = 10.0
_GSETTINGS = ("org.gnome.desktop.background", "picture-uri")
_PATTERNS = ("*/desktop-items-0.conf", "*/desktop-items.conf", "*/pcmanfm.conf")


async def get_wallpaper(context: OsworldContext, request: Request) -> Response:
    path = _of_pcmanfm(context) or await _of_gnome(context)
    file = None if path is None else context.session.file(path)
    if file is None or not file.is_file():
        return error(404, "Wallpaper file not found", "no_such_file")
    return Response.stream(file, "image/png")


async def change_wallpaper(context: OsworldContext, request: Request) -> Response:
    path = context.session.path(fields.text(request.json_object(), "path"))
    if not context.session.file(path).exists():
        return Response.text(f"File not found: {path}", status=404)
    uri = path.absolute().as_uri()
    drawn = await _succeeds(context, ["pcmanfm", f"--set-wallpaper={path}"])
    noted = await _succeeds(context, ["gsettings", "set", *_GSETTINGS, uri])
    if not drawn and not noted:
        return Response.text("Failed to change wallpaper. Error: no desktop took it", status=500)
    return Response.text("Wallpaper changed successfully")


async def _succeeds(context: OsworldContext, argv: list[str]) -> bool:
    try:
        return (await context.runner.run(argv, timeout_s=TIMEOUT_S)).returncode == 0
    except (CommandTimeoutError, OSError):
        return False


def _of_pcmanfm(context: OsworldContext) -> Path | None:
    """Return the picture that pcmanfm's settings name; the user's settings come before the system's."""
    for base in (context.session.home / ".config/pcmanfm", Path("/etc/xdg/pcmanfm")):
        for pattern in _PATTERNS:
            for settings in sorted(context.session.file(base).glob(pattern)):
                for line in settings.read_text("utf-8", "replace").splitlines():
                    if line.startswith("wallpaper="):
                        return Path(line.partition("=")[2])
    return None


async def _of_gnome(context: OsworldContext) -> Path | None:
    from osgym_guest.urlencoded import unquote

    try:
        result = await context.runner.run(["gsettings", "get", *_GSETTINGS], timeout_s=TIMEOUT_S)
    except (CommandTimeoutError, OSError):
        return None
    uri = result.output.strip().strip("'")
    return Path(unquote(uri.removeprefix("file://"))) if uri.startswith("file://") else None
