"""``/setup/download_file``: downloads a file, where the replica has a network."""

from __future__ import annotations

from osgym_guest.http import Request, Response
from osgym_guest.osworld import fields
from osgym_guest.osworld.context import OsworldContext
from osgym_guest.osworld.process import CommandTimeoutError

TIMEOUT_S = 300.0
RETRIES = 2
MAX_BYTES = 2 << 30


async def download_file(context: OsworldContext, request: Request) -> Response:
    """Download a URL into a file. A file that cannot be loaded completely is removed."""
    data = request.json_object()
    if not data.get("url") or not data.get("path"):
        return Response.text("Path or URL not supplied!", status=400)
    url, path = fields.text(data, "url"), context.session.path(fields.text(data, "path"))
    if not url.startswith(("http://", "https://")):
        return Response.text(f"Not a URL of http or https: {url}", status=400)
    argv = ["curl", "-fsSL", "--proto", "=http,https", "--proto-redir", "=http,https"]
    argv += ["--retry", str(RETRIES), "--max-time", f"{TIMEOUT_S:g}", "--max-filesize", str(MAX_BYTES)]
    argv += ["--create-dirs", "-o", str(path), "--", url]
    file = context.session.file(path)
    was_there = file.exists()
    try:
        result = await context.runner.run(argv, timeout_s=TIMEOUT_S + 10)
    except (CommandTimeoutError, OSError) as exc:
        return Response.text(f"Failed to download {url}. Error: {exc}", status=500)
    if result.returncode != 0:
        if not was_there:
            file.unlink(missing_ok=True)
        return Response.text(f"Failed to download {url}. Error: {result.error.strip()}", status=500)
    return Response.text(f"File downloaded successfully: {file.stat().st_size} bytes")
