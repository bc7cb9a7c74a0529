"""Images in OCI layouts: pushed, pulled, resumed, shared, and refused when they are not what they say."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import shutil
import tarfile
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from tests.support.local_http import serving_http
from tests.support.moto_server import fake_aws

from osgym_host.images.content_store import close_folder, open_folder
from osgym_host.images.idmap import IdMap
from osgym_host.images.namespaces import NamespaceSpec, call, operate
from osgym_host.images.progress import BakeProgress, ProgressDisplay
from osgym_host.images.registry import oci
from osgym_host.images.registry.errors import RegistryCode, RegistryError
from osgym_host.images.registry.fetch import read_index
from osgym_host.images.registry.places import FolderPlace, Place, open_place
from osgym_host.images.registry.pull import pull
from osgym_host.images.registry.push import Moved, push
from osgym_host.images.store import Image, ImageManifest, ImageStore

pytestmark = pytest.mark.desktop

TREE = """
mkdir -p usr/bin etc var/lib/dpkg/info home/user "usr/share/with space"
printf 'tool\\n' > usr/bin/tool; chmod 4755 usr/bin/tool; ln usr/bin/tool usr/bin/twin
ln -s usr/bin bin; ln -s /etc/absolute etc/link
printf '/bin/tool\\n/usr/bin/twin\\n' > var/lib/dpkg/info/tool.list
printf 'secret\\n' > etc/shadow; chmod 640 etc/shadow; chown 0:42 etc/shadow
printf 'mine\\n' > home/user/note; chown -R 1000:1000 home/user; chmod 700 home/user
printf 'x' > "usr/share/with space/ä"
head -c 9000000 /dev/urandom > usr/big
find . -exec touch -hd @1700000000 {} +
"""


@pytest.fixture
def store(tmp_path: Path, idmap: IdMap) -> ImageStore:
    """A store with one small image."""
    store = ImageStore(tmp_path / "here")
    make_image(store, idmap, "one", TREE)
    return store


@pytest.fixture
def there(tmp_path: Path) -> ImageStore:
    """The empty store of another host."""
    return ImageStore(tmp_path / "there")


@pytest.fixture
def layout(tmp_path: Path, store: ImageStore) -> Path:
    """A folder to which the image has been pushed."""
    sent(store, FolderPlace(tmp_path / "layout"))
    return tmp_path / "layout"


def make_image(store: ImageStore, idmap: IdMap, word: str, script: str, base: Image | None = None) -> Image:
    """Publish an image whose files a shell script makes, over those of another one."""
    with store.workspace() as workspace:
        made = workspace / "made"
        made.mkdir()
        open_folder(made, idmap)
        inside = NamespaceSpec(made, idmap)
        operate(inside, "make", paths=["rootfs"])
        if base is not None:
            call(inside, ["cp", "-a", f"../../{base.digest}/rootfs/.", "rootfs"])
        call(inside, ["env", "-C", "rootfs", "sh", "-euc", script])  # cd would need the path above
        close_folder(made)
        manifest = ImageManifest(
            digest=hashlib.sha256(word.encode()).hexdigest(), flavor="tiny", suite="bookworm",
            screen=(1920, 1080), user="user", home="/home/user", uid_base=idmap.uid_base,
            gid_base=idmap.gid_base, id_count=65536, definition_key=word, packages={"bc": "1"},
            lock_digest="", apps=[], remedies=[], guest_version="0", size_bytes=1, bake_s=1.0,
        )  # fmt: skip
        image = store.publish(made, manifest)
    store.tag("tiny", image.digest)
    return image


def silent() -> BakeProgress:
    return BakeProgress(ProgressDisplay.NONE)


def sent(store: ImageStore, place: Place, tag: str = "tiny") -> Moved:
    return push(store, store.resolve("tiny"), place, tag, silent())


def got(
    store: ImageStore, place: Place, *mirrors: Place, name: str = "tiny", keep: Path | None = None
) -> Moved:
    return pull(store, place, name, mirrors, silent(), keep)


def content(image: Image) -> dict[str, Any]:
    """Return the digest of the files of an image, with owners and modes."""
    idmap = IdMap(image.manifest.uid_base, image.manifest.gid_base)
    found = operate(NamespaceSpec(image.folder, idmap), "digest", path="rootfs")
    assert isinstance(found, dict)
    return found


def listing(image: Image) -> str:
    """Return names, times, owners, modes and targets of the files of an image."""
    idmap = IdMap(image.manifest.uid_base, image.manifest.gid_base)
    return call(NamespaceSpec(image.folder, idmap), ["find", "rootfs", "-printf", "%p %T@ %U %G %m %n %l\\n"])


def test_a_pulled_image_is_the_same(store: ImageStore, there: ImageStore, layout: Path) -> None:
    """Content, owners, modes, times and hard links; and nothing but the image is left."""
    moved = got(there, FolderPlace(layout))
    image = store.resolve("tiny")
    assert there.resolve("tiny").manifest == image.manifest
    assert content(moved.image) == content(image)
    assert sorted(listing(moved.image).splitlines()) == sorted(listing(image).splitlines())
    assert {path.name for path in there.folder.iterdir()} == {image.digest, "tags", ".locks"}
    assert not list((there.data_dir / "cache" / "pulls").rglob("*.*")), "no layer is kept"
    again = got(there, FolderPlace(layout))
    assert (again.moved_layers, again.image) == (0, moved.image)


def test_a_layout_is_one_of_oci(layout: Path) -> None:
    """Other programs find marker, index, manifest, configuration and layers by their digests."""
    assert json.loads((layout / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads((layout / "index.json").read_text())
    blobs = {path.name: path.read_bytes() for path in (layout / "blobs" / "sha256").iterdir()}
    assert all(hashlib.sha256(data).hexdigest() == name for name, data in blobs.items())

    def blob(descriptor: dict[str, Any]) -> bytes:
        data = blobs[descriptor["digest"].removeprefix("sha256:")]
        assert len(data) == descriptor["size"]
        return data

    manifest = json.loads(blob(index["manifests"][0]))
    config = json.loads(blob(manifest["config"]))
    unpacked = [gzip.decompress(blob(layer)) for layer in manifest["layers"]]
    diff_ids = [f"sha256:{hashlib.sha256(data).hexdigest()}" for data in unpacked]
    assert config["rootfs"] == {"type": "layers", "diff_ids": diff_ids}
    assert len(blobs) == len(unpacked) + 2


def test_a_new_version_moves_what_changed(
    store: ImageStore, there: ImageStore, layout: Path, idmap: IdMap
) -> None:
    """One changed file: its layer and that of the folders; all other files are shared on the disk."""
    place = FolderPlace(layout)
    first = got(there, place).image
    newer = make_image(store, idmap, "two", "printf 'other\\n' > etc/shadow", store.resolve("tiny"))
    pushed = sent(store, place)
    assert 1 <= pushed.moved_layers <= 2 < pushed.layers
    pulled = got(there, place)
    assert pulled.moved_layers <= 2 and pulled.moved_bytes < 100_000
    assert content(pulled.image) == content(newer) != content(first)
    big = [image.rootfs / "usr" / "big" for image in (first, pulled.image)]
    assert big[0].stat().st_ino == big[1].stat().st_ino
    assert got(there, place, name=newer.digest).image.digest == newer.digest
    assert read_index(place).names() == ["tiny"]


class BreaksOff(Place):
    """A place whose connection breaks in the middle of every blob, once."""

    def __init__(self, below: Place) -> None:
        super().__init__("broken")
        self._below = below
        self.offsets: dict[str, list[int]] = {}
        self._mutex = threading.Lock()

    def size(self, name: str) -> int | None:
        return self._below.size(name)

    def read(self, name: str, offset: int = 0) -> Iterator[bytes]:
        with self._mutex:
            asked = self.offsets.setdefault(name, [])
            asked.append(offset)
        data = b"".join(self._below.read(name, offset))
        if len(asked) == 1 and name.startswith("blobs") and len(data) > 10_000:
            yield data[: len(data) // 2]
            raise self.failed("connection reset")
        yield data


def test_a_broken_pull_goes_on_where_it_stopped(there: ImageStore, layout: Path, store: ImageStore) -> None:
    """The second half only is asked for again."""
    place = BreaksOff(FolderPlace(layout))
    assert content(got(there, place).image) == content(store.resolve("tiny"))
    resumed = [offsets for offsets in place.offsets.values() if len(offsets) == 2]
    assert resumed and all(second > 4_000_000 for _, second in resumed)


def test_mirrors_are_asked_first_and_need_no_trust(
    there: ImageStore, layout: Path, tmp_path: Path, store: ImageStore
) -> None:
    """A complete one serves all layers; one with wrong content costs time only."""
    bad = tmp_path / "bad"
    shutil.copytree(layout, bad)
    for blob in (bad / "blobs" / "sha256").iterdir():
        blob.write_bytes(b"x" * blob.stat().st_size)
    asked = BreaksOff(FolderPlace(layout))
    moved = got(there, asked, FolderPlace(bad))
    assert content(moved.image) == content(store.resolve("tiny"))
    again = ImageStore(tmp_path / "again")
    origin = BreaksOff(FolderPlace(layout))
    got(again, origin, FolderPlace(layout))
    manifest = json.loads((layout / read_index(FolderPlace(layout)).manifests[0].name).read_text())
    layers = {f"blobs/sha256/{layer['digest'][7:]}" for layer in manifest["layers"]}
    assert not layers & origin.offsets.keys(), "no layer came from the origin"


def test_kept_layers_serve_others(there: ImageStore, layout: Path, tmp_path: Path, store: ImageStore) -> None:
    """With --keep a host has a layout of its own, from which the next one pulls everything."""
    keep = tmp_path / "kept"
    got(there, FolderPlace(layout), keep=keep)
    third = ImageStore(tmp_path / "third")
    assert content(got(third, FolderPlace(keep)).image) == content(store.resolve("tiny"))


def _handler(folder: Path, *, ranges: bool) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = folder / self.path.removeprefix("/images/")
            found = path.is_file()
            data = path.read_bytes() if found else b""
            begin = int(re.findall(r"\d+", self.headers.get("Range") or "0")[0]) if ranges else 0
            self.send_response((206 if begin else 200) if found else 404)
            self.send_header("Content-Length", str(len(data) - begin))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data[begin:])

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    return Handler


@pytest.mark.parametrize("ranges", [True, False])
def test_a_web_server_can_be_pulled_from(
    there: ImageStore, layout: Path, store: ImageStore, ranges: bool
) -> None:
    """With or without support for ranges, also where half a blob is there already; not pushed to."""
    blob = max((layout / "blobs" / "sha256").iterdir(), key=lambda path: path.stat().st_size)
    part = there.data_dir / "cache" / "pulls" / "blobs" / "sha256" / f"{blob.name}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(blob.read_bytes()[:5_000_000])
    with serving_http(_handler(layout, ranges=ranges)) as url:
        place = open_place(f"{url}/images")
        assert content(got(there, place).image) == content(store.resolve("tiny"))
        with pytest.raises(RegistryError, match=r"unsupported_place: .* only be pulled"):
            sent(store, place, tag="other")


def test_s3(store: ImageStore, there: ImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Push to and pull from a prefix of a bucket, by a real server of S3's protocol."""
    with fake_aws(monkeypatch) as aws:
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        aws.client("s3").create_bucket(Bucket="images")
        place = open_place("s3://images/some/prefix")
        assert sent(store, place).moved_layers > 0
        assert sent(store, place).moved_layers == 0
        assert content(got(there, place).image) == content(store.resolve("tiny"))
        keys = [one["Key"] for one in aws.client("s3").list_objects_v2(Bucket="images")["Contents"]]
        assert {"some/prefix/index.json", "some/prefix/oci-layout"} < set(keys)
        with pytest.raises(RegistryError) as refused:
            sent(store, open_place("s3://nobody-has-this-bucket/x"))
        assert refused.value.code is RegistryCode.UNREACHABLE


def test_gcs(store: ImageStore, there: ImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Push to and pull from a prefix of a bucket, by the calls of the JSON API that are used."""
    pytest.importorskip("google.auth", reason="missing: google-auth")
    objects: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            parts = urllib.parse.urlsplit(self.path)
            assert parts.path == "/upload/storage/v1/b/images/o"
            name = urllib.parse.parse_qs(parts.query)["name"][0]
            objects[name] = self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(200, b"{}")

        def do_GET(self) -> None:
            parts = urllib.parse.urlsplit(self.path)
            found = objects.get(urllib.parse.unquote(parts.path.removeprefix("/storage/v1/b/images/o/")))
            if found is None:
                return self._answer(404, b"{}")
            media = json.dumps({"size": str(len(found))}).encode()
            return self._answer(200, found if "alt=media" in parts.query else media)

        def _answer(self, status: int, data: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    with serving_http(Handler) as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        place = open_place("gs://images/some/prefix")
        assert sent(store, place).moved_layers > 0
        assert "some/prefix/index.json" in objects
        assert content(got(there, place).image) == content(store.resolve("tiny"))


Member = tuple[tarfile.TarInfo, bytes]


def _file(name: str, **fields: Any) -> Member:
    info = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, b"x" * info.size


def _link(name: str, target: str, kind: bytes) -> Member:
    return _file(name, type=kind, linkname=target)


def _rewrite(layout: Path, change: Callable[[dict[str, Any], dict[str, Any], list[bytes]], None]) -> None:
    """Change documents and layers of a layout by hand, with right digests again."""
    blobs = layout / "blobs" / "sha256"

    def load(descriptor: dict[str, Any]) -> bytes:
        return (blobs / descriptor["digest"][7:]).read_bytes()

    def store(data: bytes) -> tuple[str, int]:
        name = hashlib.sha256(data).hexdigest()
        (blobs / name).write_bytes(data)
        return f"sha256:{name}", len(data)

    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads(load(index["manifests"][0]))
    config = json.loads(load(manifest["config"]))
    layers = [load(layer) for layer in manifest["layers"]]
    change(manifest, config, layers)
    for layer, data in zip(manifest["layers"], layers, strict=True):
        layer["digest"], layer["size"] = store(data)
    manifest["config"]["digest"], manifest["config"]["size"] = store(json.dumps(config).encode())
    entry = index["manifests"][0]
    entry["digest"], entry["size"] = store(json.dumps(manifest).encode())
    (layout / "index.json").write_text(json.dumps(index))


def _hostile(layout: Path, *members: Member, tail: bytes = b"") -> None:
    """Replace the last layer by one with these entries."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    raw = out.getvalue() + tail

    def change(manifest: dict[str, Any], config: dict[str, Any], layers: list[bytes]) -> None:
        layers[-1] = gzip.compress(raw)
        config["rootfs"]["diff_ids"][-1] = f"sha256:{hashlib.sha256(raw).hexdigest()}"

    _rewrite(layout, change)


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ([_file("../escape", size=1)], RegistryCode.UNSAFE_PATH),
        ([_file("/etc/escape", size=1)], RegistryCode.UNSAFE_PATH),
        ([_file("etc/../../escape", size=1)], RegistryCode.UNSAFE_PATH),
        ([_link("out", "/tmp", tarfile.SYMTYPE), _file("out/escape", size=1)], RegistryCode.UNSAFE_PATH),
        ([_link("twin", "../../../manifest.json", tarfile.LNKTYPE)], RegistryCode.UNSAFE_PATH),
        (
            [_link("up", "/etc/passwd", tarfile.SYMTYPE), _link("x", "up", tarfile.LNKTYPE)],
            RegistryCode.UNSAFE_PATH,
        ),
        ([_file("disk", type=tarfile.BLKTYPE, devmajor=8)], RegistryCode.UNSAFE_PATH),
        ([_file("pipe", type=tarfile.FIFOTYPE)], RegistryCode.UNSAFE_PATH),
        ([_file("owner", uid=70_000)], RegistryCode.UNSAFE_PATH),
        ([_file("etc/shadow", size=1)], RegistryCode.MALFORMED_LAYER),
        ([_file("missing/folder/x", size=1)], RegistryCode.UNSAFE_PATH),
    ],
)  # fmt: skip
def test_hostile_entries_are_refused(
    there: ImageStore, layout: Path, tmp_path: Path, members: list[Member], code: RegistryCode
) -> None:
    """With a stable code; the store has no image, no leftover, and nothing was written beside it."""
    _hostile(layout, *members)
    with pytest.raises(RegistryError) as refused:
        got(there, FolderPlace(layout))
    assert refused.value.code is code and str(refused.value).startswith(f"{code}: ")
    assert not there.all() and not there.tagged()
    assert {path.name for path in there.folder.iterdir()} == {"tags", ".locks"}
    assert not list(tmp_path.rglob("escape"))


def test_a_bomb_is_refused(there: ImageStore, layout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpacking stops at the bound, also for what follows the archive's end."""
    monkeypatch.setattr(oci, "MAX_IMAGE_BYTES", 20 << 20)
    _hostile(layout, _file("small", size=1), tail=bytes(64 << 20))
    with pytest.raises(RegistryError) as refused:
        got(there, FolderPlace(layout))
    assert refused.value.code is RegistryCode.TOO_LARGE


def _set(document: str, **values: Any) -> Callable[[dict[str, Any], dict[str, Any], list[bytes]], None]:
    def change(manifest: dict[str, Any], config: dict[str, Any], layers: list[bytes]) -> None:
        target = {"manifest": manifest, "config": config, "image": config["io.osgym"]["image"]}[document]
        target.update(values)

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("image", digest="../../../../tmp/escape"),
        _set("image", flavor="../tags"),
        _set("image", home="/home/../.."),
        _set("image", id_count=2),
        _set("config", **{"io.osgym": {}}),
        _set("config", rootfs={"type": "layers", "diff_ids": []}),
        _set("manifest", schemaVersion=1),
    ],
)
def test_hostile_documents_are_refused(
    there: ImageStore, layout: Path, change: Callable[[dict[str, Any], dict[str, Any], list[bytes]], None]
) -> None:
    """Before any layer is fetched."""
    _rewrite(layout, change)
    with pytest.raises(RegistryError) as refused:
        got(there, FolderPlace(layout))
    assert refused.value.code is RegistryCode.UNSUPPORTED_LAYOUT
    assert not (there.data_dir / "cache" / "pulls").exists()


def test_wrong_content_is_refused(there: ImageStore, layout: Path) -> None:
    """A changed byte of a layer, and a layer that unpacks to something else than the configuration says."""
    blob = max((layout / "blobs" / "sha256").iterdir(), key=lambda path: path.stat().st_size)
    right = blob.read_bytes()
    blob.write_bytes(right[:-9] + b"y" + right[-8:])
    with pytest.raises(RegistryError) as refused:
        got(there, FolderPlace(layout))
    assert refused.value.code is RegistryCode.DIGEST_MISMATCH
    blob.write_bytes(right)

    def change(manifest: dict[str, Any], config: dict[str, Any], layers: list[bytes]) -> None:
        config["rootfs"]["diff_ids"][-1] = f"sha256:{'0' * 64}"

    _rewrite(layout, change)
    with pytest.raises(RegistryError) as refused:
        got(there, FolderPlace(layout))
    assert refused.value.code is RegistryCode.DIGEST_MISMATCH
    assert not there.all()


def test_large_documents_and_sizes_are_refused(there: ImageStore, layout: Path) -> None:
    """An index beyond the bound, and layers that say they are larger than the disk."""
    index = (layout / "index.json").read_text()
    (layout / "index.json").write_text(index + " " * oci.MAX_DOCUMENT_BYTES)
    with pytest.raises(RegistryError) as refused:
        got(there, FolderPlace(layout))
    assert refused.value.code is RegistryCode.TOO_LARGE
    descriptor = json.loads(index)
    descriptor["manifests"][0]["size"] = 1 << 60
    (layout / "index.json").write_text(json.dumps(descriptor))
    with pytest.raises(RegistryError) as refused:
        got(there, FolderPlace(layout))
    assert refused.value.code is RegistryCode.UNSUPPORTED_LAYOUT


def test_missing_images_and_places_are_named(there: ImageStore, layout: Path, tmp_path: Path) -> None:
    """With what the place has, and which places there are."""
    with pytest.raises(RegistryError, match=r"not_found: .* 'full'") as refused:
        got(there, FolderPlace(layout), name="full")
    assert refused.value.hint == "it has tiny"
    with pytest.raises(RegistryError, match="not_found"):
        got(there, FolderPlace(tmp_path / "nothing"))
    with pytest.raises(RegistryError, match="unsupported_place: 'ftp://x/y'"):
        open_place("ftp://x/y")
