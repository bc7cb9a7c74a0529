"""Shows what a stack would create, and its price, without an account.

    python -m osgym_infra.preview.run [--refusals MODULE] [Pulumi.<stack>.yaml …]

Default: the examples. The real program and the real SDKs run in a copy of the project, in which fakes
(`fake_cloud.py`) take the places of the cloud providers; our own provider touches no host in a preview. With
`--refusals` the fakes refuse what `refusals` of a module below the project refuses, as `make preview` does.
Needs the `pulumi` CLI on PATH; state and passphrase live in a temporary folder and vanish with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from osgym_infra.config.providers import usable

ROOT = Path(__file__).resolve().parents[3]
CLOUDS = tuple(one for one in usable() if one.optional_part("preview"))
EXAMPLES = tuple(sorted(ROOT.glob("Pulumi.example-*.yaml")))
TIMEOUT_S = 900
PLUGIN = """from osgym_infra.preview.fake_cloud import main

main({name!r}, {root!r}, {refusals!r})
"""


def copy_project(folder: Path, root: Path = ROOT, refusals: str = "") -> None:
    """Make a project of our programs in `folder`, with fakes for the cloud providers.

    Args:
        folder: Exists. Configurations (`Pulumi.<stack>.yaml`) go there too.
        refusals: Module below `root` whose `refusals` says which requests the fakes refuse.
    """
    project: dict[str, Any] = yaml.safe_load((root / "Pulumi.yaml").read_text("utf-8"))
    (folder / "infra").symlink_to(root / "infra")
    python = {"name": "python", "options": {"toolchain": "pip", "virtualenv": sys.prefix}}
    plugins = [
        {**plugin, "path": str(root / plugin["path"])}
        for plugin in project.get("plugins", {}).get("providers", [])
    ]
    for name in CLOUDS:
        plugin = folder / "fakes" / name
        plugin.mkdir(parents=True)
        (plugin / "PulumiPlugin.yaml").write_text(yaml.safe_dump({"runtime": python}), "utf-8")
        program = PLUGIN.format(name=str(name), root=str(root), refusals=refusals)
        (plugin / "__main__.py").write_text(program, "utf-8")
        plugins.append({"name": str(name), "path": str(plugin)})
    project |= {"runtime": python, "plugins": {"providers": plugins}}
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump(project), "utf-8")


def environment(folder: Path, base: Mapping[str, str]) -> dict[str, str]:
    """Return variables for the CLI: it keeps everything in `folder` and asks nobody."""
    (folder / "state").mkdir(exist_ok=True)
    return {
        **{
            name: value for name, value in base.items() if not name.startswith(("PULUMI_", "AWS_", "GOOGLE_"))
        },
        "PULUMI_HOME": str(folder / "home"),
        "PULUMI_BACKEND_URL": f"file://{folder / 'state'}",
        "PULUMI_CONFIG_PASSPHRASE": "only for this preview",
        "PULUMI_SKIP_UPDATE_CHECK": "1",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "1",
        # The CLI asks for a keyring; where there is no session it would start a bus daemon, which stays.
        "DBUS_SESSION_BUS_ADDRESS": "disabled:",
        # The generated SDKs warn about names of their own.
        "PYTHONWARNINGS": "ignore",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def preview(config: Path, refusals: str = "") -> int:
    """Run `pulumi preview` for a configuration; return its exit code."""
    stack = config.name.removeprefix("Pulumi.").removesuffix(".yaml")
    with tempfile.TemporaryDirectory(prefix="osgym-preview-") as name:
        folder = Path(name)
        copy_project(folder, refusals=refusals)
        shutil.copy(config, folder / f"Pulumi.{stack}.yaml")
        # Nothing is made: what is frozen here would go to no host (`resources.archives.PREVIEW`).
        variables = {**environment(folder, os.environ), "MAKE_PREVIEW": "1"}
        for command in (["stack", "init", stack], ["preview", "--stack", stack, "--suppress-progress"]):
            quiet = subprocess.DEVNULL if command[0] == "stack" else None
            done = subprocess.run(
                ["pulumi", *command, "--non-interactive", "--cwd", name],
                env=variables, stdout=quiet, timeout=TIMEOUT_S, check=False,
            )  # fmt: skip
            if done.returncode:
                return done.returncode
    return 0


def main(arguments: Sequence[str]) -> int:
    """Run; return the exit code: 2 without the CLI, otherwise the first of Pulumi's that is not 0."""
    if shutil.which("pulumi") is None:
        print(
            "preview: `pulumi` is not on PATH. Install it: https://www.pulumi.com/docs/install",
            file=sys.stderr,
        )
        return 2
    refusals = ""
    if arguments[:1] == ["--refusals"] and len(arguments) > 1:
        refusals, arguments = arguments[1], arguments[2:]
    for path in [Path(argument) for argument in arguments] or EXAMPLES:
        if not (path.name.startswith("Pulumi.") and path.suffix == ".yaml" and path.is_file()):
            print(f"preview: {path} must be a file named Pulumi.<stack>.yaml", file=sys.stderr)
            return 2
        print(f"== {path.name}")
        sys.stdout.flush()
        if code := preview(path, refusals):
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
