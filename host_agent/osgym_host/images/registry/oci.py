"""Documents of an OCI image layout (https://github.com/opencontainers/image-spec), and their bounds."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from osgym_host.images.registry.errors import RegistryCode, RegistryError

INDEX = "index.json"
MARKER = "oci-layout"
MARKER_TEXT = '{"imageLayoutVersion":"1.0.0"}'
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
REF_NAME = "org.opencontainers.image.ref.name"
IMAGE_DIGEST = "io.osgym.image.digest"
"""Annotation with the content digest by which stores of images name an image."""

MAX_DOCUMENT_BYTES = 8 << 20
MAX_LAYERS = 1024
MAX_BLOB_BYTES = 16 << 30
MAX_IMAGE_BYTES = 64 << 30
"""Largest uncompressed size of an image."""
_DIGEST = r"^sha256:[0-9a-f]{64}$"


class Descriptor(BaseModel):
    """Reference to a blob by its content."""

    model_config = ConfigDict(frozen=True)

    media_type: str = Field(alias="mediaType", max_length=256)
    digest: str = Field(pattern=_DIGEST)
    size: int = Field(ge=0, le=MAX_BLOB_BYTES)
    annotations: dict[str, str] = Field(default_factory=dict)

    @property
    def hex(self) -> str:
        """Hexadecimal digits of the digest."""
        return self.digest.removeprefix("sha256:")

    @property
    def name(self) -> str:
        """Name of the blob in a layout."""
        return f"blobs/sha256/{self.hex}"


class OciIndex(BaseModel):
    """`index.json`: the images of a layout."""

    schema_version: Literal[2] = Field(default=2, alias="schemaVersion")
    media_type: str = Field(default=INDEX_TYPE, alias="mediaType")
    manifests: list[Descriptor] = Field(default_factory=list, max_length=10_000)

    def find(self, name: str) -> Descriptor | None:
        """Return the image of this tag, this digest of its content, or this digest of its manifest."""
        for entry in self.manifests:
            notes = entry.annotations
            if name in (notes.get(REF_NAME), notes.get(IMAGE_DIGEST), entry.digest):
                return entry
        return None

    def names(self) -> list[str]:
        """Return the tags of all images."""
        return sorted(name for entry in self.manifests if (name := entry.annotations.get(REF_NAME)))


class OciManifest(BaseModel):
    """Manifest of one image."""

    schema_version: Literal[2] = Field(default=2, alias="schemaVersion")
    media_type: str = Field(default=MANIFEST_TYPE, alias="mediaType")
    config: Descriptor
    layers: list[Descriptor] = Field(min_length=1, max_length=MAX_LAYERS)


class RootFs(BaseModel):
    """Digests of the uncompressed layers, in their order."""

    type: Literal["layers"] = "layers"
    diff_ids: list[str] = Field(max_length=MAX_LAYERS)


class OciConfig(BaseModel):
    """Configuration of one image; `io.osgym` holds what stores of images keep beside the file system."""

    architecture: str = "amd64"
    os: Literal["linux"] = "linux"
    rootfs: RootFs
    osgym: dict[str, Any] = Field(alias="io.osgym")


D = TypeVar("D", bound=BaseModel)


def parse(model: type[D], data: bytes, what: str) -> D:
    """Parse a document.

    Raises:
        RegistryError: The document is malformed.
    """
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        text = f"{what} is no document of an OSGym image: {where}: {first['msg']}"
        raise RegistryError(RegistryCode.UNSUPPORTED_LAYOUT, text) from error


def encode(document: BaseModel) -> bytes:
    """Return a document as JSON; equal documents give equal bytes."""
    return json.dumps(document.model_dump(by_alias=True), sort_keys=True, separators=(",", ":")).encode()


def describe(data: bytes, media_type: str, annotations: dict[str, str] | None = None) -> Descriptor:
    """Return the descriptor of a blob."""
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    return Descriptor(mediaType=media_type, digest=digest, size=len(data), annotations=annotations or {})
