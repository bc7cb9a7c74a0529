"""Other contents of an archive: zip, tar and compressed tar."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from osgym_certify.ends.archive_files import Archive, Form, Member, read, write
from osgym_certify.ends.base import Content, GoldenFile, Must, distinct
from osgym_certify.ends.draw import by_name, few

_MAX_PUT_BACK = 6
_OTHER_TIME = 1_000_000_000
"""Time in seconds since 1970, in 2001."""
_ADDED = b"another file\n"


def mutations(golden: GoldenFile, dice: random.Random) -> Iterator[Content]:
    """Yield archives of which a member is wrong, lost, added or elsewhere."""
    archive = read(golden.data)
    if archive is None:
        return
    drawn = by_name(dice)
    made = [
        Content(name, Must.EARN_NOTHING, write(changed))
        for name, mutate in _MUTATORS.items()
        for changed in mutate(archive, drawn(name))
        if changed.has_distinct_names
    ]
    before = None if golden.before is None else read(golden.before)
    if before is not None:
        made += [
            Content("one changed member put back", Must.EARN_NOTHING, write(changed))
            for changed in _changes_put_back(archive, before, drawn("put back"))
            if changed.has_distinct_names
        ]
    yield from distinct(golden, made)


def equivalents(golden: GoldenFile, dice: random.Random) -> Iterator[Content]:
    """Yield archives from which the same files are unpacked."""
    archive = read(golden.data)
    if archive is None:
        return
    made: dict[str, Archive] = {
        "other times of members": _with_members(
            archive, (replace(one, time=_OTHER_TIME) for one in archive.members)
        ),
        "entries of folders added": _with_folder_entries(archive),
        "entries of folders left out": _without_folder_entries(archive),
    }
    if not any(one.target for one in archive.members):  # a hard link follows the member that it names
        made["order of members reversed"] = _with_members(archive, reversed(archive.members))
    if archive.form is not Form.ZIP:
        made["names begun with ./"] = _renamed(archive, lambda name: f"./{name.removeprefix('./')}")
        made["other owner of members"] = _with_members(
            archive, (replace(one, owner=1234) for one in archive.members)
        )
    contents = [Content(name, Must.EARN_ALL, write(changed)) for name, changed in made.items()]
    if archive.form is not Form.TAR:
        contents.append(Content("saved with other compression", Must.EARN_ALL, write(archive, level=1)))
        contents.append(Content("stored without compression", Must.EARN_ALL, write(archive, level=0)))
    yield from distinct(golden, contents)


def _with_members(archive: Archive, members: Iterable[Member]) -> Archive:
    return replace(archive, members=tuple(members))


def _with_member(archive: Archive, member: Member, *others: Member) -> Archive:
    """Return the archive with other members in place of one."""
    return _with_members(
        archive, (new for one in archive.members for new in (others if one is member else (one,)))
    )


def _renamed(archive: Archive, other: Callable[[str], str]) -> Archive:
    """Return the archive with all members under other names."""
    return _with_members(
        archive,
        (
            replace(one, name=other(one.name), target=other(one.target) if one.is_hard_link else one.target)
            for one in archive.members
        ),
    )


def _with_folder_entries(archive: Archive) -> Archive:
    known = {one.name.rstrip("/") for one in archive.members if one.is_folder}
    wanted = sorted({folder for one in archive.members for folder in _folders_of(one.name)} - known)
    return _with_members(archive, (*(Member.folder(name) for name in wanted), *archive.members))


def _without_folder_entries(archive: Archive) -> Archive:
    """Return the archive without the folders that unpacking makes for their members anyway."""
    needed = {folder for one in archive.members for folder in _folders_of(one.name)}
    return _with_members(
        archive, (one for one in archive.members if not (one.is_folder and one.name.rstrip("/") in needed))
    )


def _folders_of(name: str) -> list[str]:
    """Return the folders above a member, without ``.`` and the root."""
    parts = name.rstrip("/").split("/")[:-1]
    folders = ["/".join(parts[: end + 1]) for end in range(min(len(parts), 20))]
    return [folder for folder in folders if folder not in ("", ".")]


def _parent(name: str) -> str:
    folder, slash, _ = name.rstrip("/").rpartition("/")
    return folder + slash


def _changes_put_back(archive: Archive, before: Archive, dice: random.Random) -> Iterator[Archive]:
    old, new = ({one.name: one for one in one_of.members} for one_of in (before, archive))
    names = [
        name
        for name in dict.fromkeys([*old, *new])
        if name not in old or name not in new or old[name].data != new[name].data
    ]
    if len(names) < 2:  # the only change put back is the file before
        return
    for name in few(names, dice, _MAX_PUT_BACK):
        if name not in new:
            yield _with_members(archive, (*archive.members, old[name]))
        else:
            yield _with_member(archive, new[name], *([old[name]] if name in old else []))


def _member_removed(archive: Archive, dice: random.Random) -> Iterator[Archive]:
    for one in few(archive.files, dice):
        yield _with_member(archive, one)


def _member_added(archive: Archive, dice: random.Random) -> Iterator[Archive]:
    for one in few(archive.files, dice):
        added = replace(one, name=f"{_parent(one.name)}another.txt", data=_ADDED)
        yield _with_members(archive, (*archive.members, added))


def _member_renamed(archive: Archive, dice: random.Random) -> Iterator[Archive]:
    for one in few(archive.files, dice):
        folder = _parent(one.name)
        yield _with_member(
            archive, one, replace(one, name=f"{folder}another-{one.name.removeprefix(folder)}")
        )


def _member_doubled(archive: Archive, dice: random.Random) -> Iterator[Archive]:
    for one in few(archive.files, dice):
        folder = _parent(one.name)
        copy = replace(one, name=f"{folder}copy-of-{one.name.removeprefix(folder)}")
        yield _with_member(archive, one, one, copy)


def _member_emptied(archive: Archive, dice: random.Random) -> Iterator[Archive]:
    for one in few((one for one in archive.files if one.data), dice):
        yield _with_member(archive, one, replace(one, data=b""))


def _member_changed(archive: Archive, dice: random.Random) -> Iterator[Archive]:
    for one in few((one for one in archive.files if one.data), dice):
        place = dice.randrange(len(one.data))
        data = one.data[:place] + bytes([one.data[place] ^ 1]) + one.data[place + 1 :]
        yield _with_member(archive, one, replace(one, data=data))


def _members_exchanged(archive: Archive, dice: random.Random) -> Iterator[Archive]:
    pairs = [
        (one, other)
        for one, other in zip(archive.files, archive.files[1:], strict=False)
        if one.data != other.data
    ]
    for one, other in few(pairs, dice):
        exchanged = {one.name: replace(one, data=other.data), other.name: replace(other, data=one.data)}
        yield _with_members(archive, (exchanged.get(member.name, member) for member in archive.members))


def _member_moved(archive: Archive, dice: random.Random) -> Iterator[Archive]:
    for one in few(archive.files, dice):
        folder = _parent(one.name)
        yield _with_member(
            archive, one, replace(one, name=f"{folder}another/{one.name.removeprefix(folder)}")
        )


def _wrapped(archive: Archive, dice: random.Random) -> Iterator[Archive]:
    yield _renamed(archive, lambda name: f"another/{name.removeprefix('./')}")


def _absolute(archive: Archive, dice: random.Random) -> Iterator[Archive]:
    yield _renamed(archive, lambda name: f"/tmp/{name.removeprefix('./')}")  # noqa: S108 - a name in an archive


def _flattened(archive: Archive, dice: random.Random) -> Iterator[Archive]:
    names = [one.name.rpartition("/")[2] for one in archive.files]
    if any(_folders_of(one.name) for one in archive.files) and len(set(names)) == len(names):
        yield _with_members(
            archive, (replace(one, name=name) for one, name in zip(archive.files, names, strict=True))
        )


def _emptied(archive: Archive, dice: random.Random) -> Iterator[Archive]:
    if archive.members:
        yield _with_members(archive, ())


def _other_form(archive: Archive, dice: random.Random) -> Iterator[Archive]:
    if not any(one.target for one in archive.members):
        yield replace(archive, form=Form.TAR_GZ if archive.form is Form.ZIP else Form.ZIP)


_MUTATORS: Mapping[str, Callable[[Archive, random.Random], Iterable[Archive]]] = {
    "one member removed": _member_removed,
    "one member added": _member_added,
    "one member renamed": _member_renamed,
    "one member copied under another name": _member_doubled,
    "one member emptied": _member_emptied,
    "one member changed": _member_changed,
    "contents of two members exchanged": _members_exchanged,
    "one member moved to another folder": _member_moved,
    "all members moved to another folder": _wrapped,
    "all members stored under absolute paths": _absolute,
    "folders of members lost": _flattened,
    "all members removed": _emptied,
    "saved as another type of archive": _other_form,
}
