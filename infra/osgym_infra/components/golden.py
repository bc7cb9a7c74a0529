"""Archives that hosts fetch, baked and packed on this machine and put where hosts can fetch them.

Each provider has a `GoldenImage` that says where that is; this one is for own machines, which are sent files
of this machine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi

from osgym_infra.archives.make import AGENT, IMAGE
from osgym_infra.components.common import HostsArgs
from osgym_infra.cost.model import boots_machines
from osgym_infra.fleet.blueprint import slug
from osgym_infra.fleet.boot import BootPlace, FetchedArchives, package, package_sha256

ROOT = Path(__file__).resolve().parents[3]


class Archive(pulumi.CustomResource):
    """File that our provider makes, from the inputs of `osgym_infra.resources.archives`.

    Attributes:
        archive: Path of the file; its name holds a part of its SHA-256.
    """

    archive: pulumi.Output[str]
    sha256: pulumi.Output[str]
    digest: pulumi.Output[str]

    def __init__(
        self, kind: str, name: str, given: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        made = {"archive": None, "sha256": None, "digest": None}
        super().__init__(kind, name, {**given, **made}, opts)


class GoldenImage(pulumi.ComponentResource):
    """The bootstrap (clouds), and image and agent unless the configuration names them.

    Attributes:
        boot: The bootstrap; None where hosts are sent it.
        bucket: That this component made, and that hosts have to be allowed to read.
    """

    fetched: pulumi.Output[FetchedArchives]
    bucket: pulumi.Output[str] | None = None
    boot: pulumi.Output[BootPlace] | None = None

    def __init__(self, name: str, args: HostsArgs) -> None:
        super().__init__("osgym:index:GoldenImage", name)
        self._name, self._args, self._config = name, args, args.blueprint.config
        folder = str(ROOT / (self._config.archives or f"out/fleet/{slug(args.stack)}"))
        parts: dict[str, pulumi.Input[str]] = dataclasses.asdict(FetchedArchives.named_in(self._config))
        self._prepare()
        if self._config.provider.rents:
            self.boot = self._bootstrap()
        if self._config.makes_image:
            image = self._archive("image", IMAGE, {"folder": folder, **self._image_inputs()})
            parts |= {"image_uri": self._uri("image", image), "image_sha256": image.sha256}
            parts["image_digest"] = image.digest
        if self._config.makes_agent:
            agent = self._archive("agent", AGENT, {"folder": folder})
            parts |= {"agent_uri": self._uri("agent", agent), "agent_sha256": agent.sha256}
        self.fetched = pulumi.Output.all(**parts).apply(lambda found: FetchedArchives(**found))
        self.register_outputs(parts)

    def feed(self, args: HostsArgs) -> HostsArgs:
        """Return the arguments of hosts that fetch these archives."""
        return dataclasses.replace(args, made=self.fetched, made_bucket=self.bucket, boot=self.boot)

    def _prepare(self) -> None:
        """Make the place for archives, where there has to be one."""

    def _bootstrap(self) -> pulumi.Output[BootPlace]:
        text = package(self._args.files)
        sha256 = package_sha256(text)
        key = f"{self._args.folder}/bootstrap-{sha256[:16]}.json"
        uri = self._text(key, text)
        folder = uri.apply(lambda found: found.removesuffix(key) + self._args.status_folder)
        return pulumi.Output.all(uri, folder).apply(lambda found: BootPlace(found[0], sha256, found[1]))

    def _text(self, key: str, content: str) -> pulumi.Output[str]:
        """Put the bootstrap into the bucket as a text; return its URI."""
        raise NotImplementedError

    def _uri(self, part: str, archive: Archive) -> pulumi.Output[str]:
        """Return the URI from which hosts fetch an archive; uploads it where needed."""
        return archive.archive.apply(lambda path: Path(path).as_uri())

    def _archive(self, part: str, kind: str, given: Mapping[str, Any]) -> Archive:
        return Archive(kind, f"{self._name}-{part}", given, pulumi.ResourceOptions(parent=self))

    def _image_inputs(self) -> dict[str, Any]:
        lock = self._config.image_lock
        return {
            "flavor": self._config.image_name,
            "lock": str(ROOT / lock) if lock else "",
            "machines": boots_machines(self._config.runtime),
            # A cloud's types are chosen for it; whether own machines have it is theirs to know.
            "kvm": boots_machines(self._config.runtime) and self._config.provider.rents,
        }

    def _key(self, archive: Archive) -> pulumi.Output[str]:
        """Return the archive's name in a bucket."""
        return archive.archive.apply(lambda path: f"{self._args.folder}/{Path(path).name}")


def place_golden_image(name: str, args: HostsArgs) -> HostsArgs:
    """Put what hosts fetch where hosts find it, as their provider does; return the hosts' arguments."""
    config = args.blueprint.config
    if not (config.makes_image or config.makes_agent or config.provider.rents):
        return args
    part = config.provider.optional_part("golden")
    kind: type[GoldenImage] = part.GoldenImage if part else GoldenImage
    return kind(name, args).feed(args)
