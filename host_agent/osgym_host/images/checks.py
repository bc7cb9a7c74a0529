"""What a baked image must be able to do before it may be called one."""

from __future__ import annotations

from pathlib import Path

from osgym_host.images.definition import Definition
from osgym_host.images.errors import BakeError, ImageError
from osgym_host.images.idmap import IdMap
from osgym_host.images.namespaces import Inside, Overlay, call, operate
from osgym_host.images.store import open_folder

_PROBE = """
set -u
failed=0
for name in $BINARIES; do
    command -v "$name" >/dev/null || { echo "missing: $name"; failed=1; }
done
for module in pyautogui_without_display Xlib PIL osgym_guest; do
    if [ "$module" = pyautogui_without_display ]; then
        python3 -c 'import importlib.util as u; import sys; sys.exit(u.find_spec("pyautogui") is None)'
    else
        python3 -I -c "import $module"
    fi || { echo "python cannot import $module"; failed=1; }
done
exit $failed
"""


def check_image(folder: Path, definition: Definition, flavor: str, idmap: IdMap) -> None:
    """Check the image in `folder/rootfs` by running programs over a throw-away overlay.

    Raises:
        BakeError: What is missing.
    """
    names = " ".join(definition.binaries_of(flavor))
    scratch = folder.parent / "probe"
    scratch.mkdir()
    open_folder(scratch, idmap)
    here = f"{scratch.name}/"
    paths = [here + name for name in ("upper", "work", "merged")]
    operate(Inside(folder.parent, idmap), "make", paths=paths)
    inside = Inside(
        folder.parent,
        idmap,
        overlay=Overlay(f"{folder.name}/rootfs", *paths),
        root=here + "merged",
        env={"BINARIES": names, "HOME": definition.user.home},
    )
    try:
        call(inside, ["/bin/sh", "-c", _PROBE], timeout_s=120)
    except ImageError as exc:
        raise BakeError("check", str(exc)) from exc
