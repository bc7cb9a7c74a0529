"""Files that hosts fetch, on the shelf's file server."""

from __future__ import annotations

import pulumi

from osgym_infra.components import golden

SERVER = "https://files.shelf.lab/"


class ServedFile(pulumi.CustomResource):
    """A file of the file server."""

    def __init__(
        self, name: str, path: pulumi.Input[str], content: object, opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__("shelf:index:File", name, {"path": path, "content": content}, opts)


class GoldenImage(golden.GoldenImage):
    """Puts image, agent and bootstrap there."""

    def _text(self, key: str, content: str) -> pulumi.Output[str]:
        options = pulumi.ResourceOptions(parent=self)
        stored = ServedFile(f"{self._name}-bootstrap", key, content, options)
        return stored.urn.apply(lambda _: SERVER + key)

    def _uri(self, part: str, archive: golden.Archive) -> pulumi.Output[str]:
        path, content = self._key(archive), archive.archive.apply(pulumi.FileAsset)
        options = pulumi.ResourceOptions(parent=archive)
        stored = ServedFile(f"{self._name}-{part}", path, content, options)
        return pulumi.Output.all(path, stored.urn).apply(lambda found: SERVER + str(found[0]))
