"""The store: what counts as an image, names, tags, leftovers."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from osgym_host.images.errors import ImageNotFound
from osgym_host.images.store import Image, ImageManifest, ImageStore


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    """An empty store."""
    store = ImageStore(tmp_path)
    store.prepare()
    return store


def _manifest(word: str, flavor: str = "small", created_at: str = "2025-01-01T00:00:00") -> ImageManifest:
    return ImageManifest(
        digest=hashlib.sha256(word.encode()).hexdigest(),
        flavor=flavor,
        suite="bookworm",
        created_at=created_at,
        screen=(1920, 1080),
        user="user",
        home="/home/user",
        uid_base=1,
        gid_base=1,
        id_count=65536,
        definition_key=word,
        packages={"bc": "1"},
        lock_digest="",
        apps=[],
        remedies=[],
        guest_version="0",
        size_bytes=1,
        bake_s=1.0,
    )


def _publish(store: ImageStore, manifest: ImageManifest) -> Image:
    with store.workspace() as workspace:
        made = workspace / "made"
        (made / "rootfs").mkdir(parents=True)
        return store.publish(made, manifest)


def test_published_image_is_found_by_tag_digest_and_prefix(store: ImageStore) -> None:
    """All three names lead to the same image."""
    image = _publish(store, _manifest("one"))
    store.tag("small", image.digest)
    for name in ("small", image.digest, image.digest[:8]):
        found = store.resolve(name)
        assert found == image
        assert found.rootfs == store.folder / image.digest / "rootfs"


@pytest.mark.parametrize("name", ["full", "", "..", "../tags", "0", "tags/small"])
def test_other_names_are_not_found(store: ImageStore, name: str) -> None:
    """Nothing else names an image: no empty prefix, no path."""
    image = _publish(store, _manifest("one"))
    store.tag("small", image.digest)
    with pytest.raises(ImageNotFound):
        store.resolve(name)


def test_ambiguous_prefix_is_refused(store: ImageStore) -> None:
    """A prefix of two images names neither."""
    first, second = _manifest("one"), _manifest("two")
    second = second.model_copy(update={"digest": first.digest[:-1] + "x"})
    _publish(store, first)
    _publish(store, second)
    with pytest.raises(ImageNotFound, match="fits several images"):
        store.resolve(first.digest[:12])


def test_folder_without_manifest_is_no_image(store: ImageStore) -> None:
    """What an interrupted bake could leave does not look baked."""
    (store.folder / ("a" * 64) / "rootfs").mkdir(parents=True)
    assert store.all() == []
    with pytest.raises(ImageNotFound):
        store.resolve("a" * 64)


def test_workspace_is_gone_after_a_failure(store: ImageStore) -> None:
    """An exception in the middle of a bake leaves no folder."""
    with pytest.raises(ZeroDivisionError), store.workspace() as workspace:
        (workspace / "image").mkdir()
        raise ZeroDivisionError
    assert [path.name for path in store.folder.iterdir()] == ["tags"]


def test_reap_removes_dead_workspaces_and_spares_live_ones(store: ImageStore) -> None:
    """What a killed bake left is removed; a bake that runs is not disturbed."""
    dead = store.folder / ".baking-dead"
    (dead / "rootfs" / "etc").mkdir(parents=True)
    (dead / "lock").touch()
    half_removed = store.folder / ".removing-abc-1"
    half_removed.mkdir()
    with store.workspace() as alive:
        assert sorted(store.reap()) == [".baking-dead", ".removing-abc-1"]
        assert alive.is_dir()
    assert not dead.exists() and not half_removed.exists()


def test_publishing_the_same_digest_twice_keeps_the_first(store: ImageStore) -> None:
    """Two bakes of the same content do not disturb replicas that run on the first."""
    first = _publish(store, _manifest("one"))
    marker = first.rootfs / "marker"
    marker.touch()
    again = _publish(store, _manifest("one").model_copy(update={"definition_key": "another"}))
    assert again.rootfs == first.rootfs
    assert marker.exists()
    assert store.resolve(first.digest).manifest.definition_key == "another", "else it would be baked again"


def test_remove_takes_the_tag_along(store: ImageStore) -> None:
    """After removal neither image nor tag nor leftover is there; other tags stay."""
    one, two = _publish(store, _manifest("one")), _publish(store, _manifest("two", "full"))
    store.tag("small", one.digest)
    store.tag("full", two.digest)
    store.remove(one)
    assert store.tagged() == {"full": two.digest}
    assert sorted(path.name for path in store.folder.iterdir()) == sorted(["tags", two.digest])


def test_list_begins_with_the_newest(store: ImageStore) -> None:
    """Images are ordered by the time they were baked."""
    old = _publish(store, _manifest("old", created_at="2025-01-01T00:00:00"))
    new = _publish(store, _manifest("new", created_at="2025-02-01T00:00:00"))
    assert [image.digest for image in store.all()] == [new.digest, old.digest]


def test_tag_of_a_removed_image_says_how_to_get_it(store: ImageStore) -> None:
    """A dangling tag is an error with the command that mends it."""
    store.tag("full", "b" * 64)
    with pytest.raises(ImageNotFound) as caught:
        store.resolve("full")
    assert caught.value.hint == "osgym image build --flavor full"


def test_a_tag_that_is_right_is_left_alone(store: ImageStore) -> None:
    """With its time, so that what is packed of the store stays the same."""
    store.tag("small", "ab" * 32)
    before = (store.tags / "small").stat()
    store.tag("small", "ab" * 32)
    assert (store.tags / "small").stat().st_ino == before.st_ino
    store.tag("small", "cd" * 32)
    assert store.tagged() == {"small": "cd" * 32}
    assert [path.name for path in store.tags.iterdir()] == ["small"]
