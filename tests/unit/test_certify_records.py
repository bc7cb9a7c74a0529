"""Certificates: verdicts, records, signatures, the page, edits, the choice of end states."""

from __future__ import annotations

import io
import json
import random
import shlex
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from osgym_certify.certificate import Certificate, Gui, Kind, Trial, Verdict, certificate_of
from osgym_certify.cli import EXIT_NOT_CERTIFIED, certificates, certify
from osgym_certify.desk import DeskError, command_of, read_files
from osgym_certify.ends.base import Chmod, Copy, Edit, End, GoldenFile, Move, Must, Remove, Write
from osgym_certify.home import LIST_PROGRAM, Changes, Entry, changes, is_hidden, read_listing, topmost_new
from osgym_certify.page import certificates_page
from osgym_certify.plan import GoldenEnd, _limited, ends_of, kept_paths, losses, worth_a_probe
from osgym_certify.play import Certification, Settings
from osgym_certify.record import append, done_digests, read_record
from osgym_certify.sense import Code, Finding, Severity
from osgym_certify.signing import KeyFileError, is_signed, private_key, public_key, signed
from osgym_certify.sources import UnknownName, subjects
from osgym_certify.subject import SubjectError, read_subject
from osgym_certify.summary import causes, figures
from osgym_protocol.task_files import task_digest

GOLDEN = Trial(Kind.GOLDEN, "oracle 1", "", 1.0, 1.0)
UNTOUCHED = Trial(Kind.UNTOUCHED, "nothing done", "", 0.0, 0.0)
MUTATION = Trial(Kind.MUTATION, "emptied", "/home/user/note.txt", 0.0, 0.0)
EQUIVALENT = Trial(Kind.EQUIVALENT, "last newline removed", "/home/user/note.txt", 1.0, 1.0)
RIGHT = Trial(Kind.RIGHT, "by the menu", "", 1.0, 1.0)
SOUND = (UNTOUCHED, GOLDEN, MUTATION, EQUIVALENT)


def made(*trials: Trial, **fields: Any) -> Certificate:
    """A certificate of these trials."""
    about: dict[str, Any] = {
        "task": "mousepad/write-note",
        "digest": "d" * 64,
        "instruction": "Write <b>milk</b>",
        "image": "i" * 64,
        "version": "0.2.0",
        "seed": 0,
        "began": "2026-01-01T00:00:00+00:00",
        "duration_s": 12.5,
        "desktops": 4,
        "gui": Gui.FREE,
    }
    return Certificate(**{**about, **fields}, trials=trials)


@pytest.mark.parametrize(
    ("trials", "fields", "verdict"),
    [
        (SOUND, {}, Verdict.CERTIFIED),
        ((*SOUND, replace(MUTATION, earned=1.0)), {}, Verdict.FAULTY),
        ((*SOUND, replace(MUTATION, earned=0.4)), {}, Verdict.CERTIFIED),
        ((*SOUND, replace(EQUIVALENT, earned=0.0)), {}, Verdict.FAULTY),
        ((*SOUND, replace(EQUIVALENT, earned=0.0, allowed="the point of the task")), {}, Verdict.CERTIFIED),
        ((*SOUND, replace(UNTOUCHED, earned=1.0)), {}, Verdict.FAULTY),
        ((*SOUND, replace(GOLDEN, earned=0.0)), {}, Verdict.FAULTY),
        ((UNTOUCHED, replace(GOLDEN, earned=0.0)), {}, Verdict.UNPROVEN),
        ((UNTOUCHED, replace(GOLDEN, earned=0.0), replace(RIGHT, earned=0.0)), {}, Verdict.UNPROVEN),
        ((replace(UNTOUCHED, earned=1.0), replace(GOLDEN, earned=0.0)), {}, Verdict.FAULTY),
        ((UNTOUCHED,), {}, Verdict.UNPROVEN),
        ((UNTOUCHED,), {"failure": "NoCapacity: no room"}, Verdict.FAILED),
        ((*SOUND, replace(MUTATION, earned=None)), {}, Verdict.FAILED),
        ((*SOUND, Trial(Kind.SHELL, "written by a shell", "", None, 1.0)), {}, Verdict.CERTIFIED),
        (SOUND, {"findings": (Finding(Code.NETWORK, Severity.DOUBTFUL, "a"),)}, Verdict.CERTIFIED),
        (SOUND, {"findings": (Finding(Code.UNNAMED_VALUE, Severity.WRONG, "a"),)}, Verdict.FAULTY),
    ],
)
def test_the_verdict_follows_from_the_trials(
    trials: tuple[Trial, ...], fields: Mapping[str, Any], verdict: Verdict
) -> None:
    """A part of the reward for a wrong end is no fault: a task may give credit by checkpoints."""
    assert made(*trials, **fields).verdict is verdict


def test_a_record_gives_back_its_newest_certificates(tmp_path: Path) -> None:
    """A torn line is skipped; a failed one is made again; another image or edition counts apart."""
    path = tmp_path / "out" / "certificates.jsonl"
    assert read_record(path) == []
    append(path, made(UNTOUCHED, failure="NoCapacity: no room"))
    assert done_digests(read_record(path), "i" * 64, 0) == set()
    append(path, made(*SOUND, findings=(Finding(Code.CLOCK, Severity.DOUBTFUL, "b"),)))
    with path.open("a") as file:
        file.write('{"task": "torn')
    assert read_record(path) == [made(*SOUND, findings=(Finding(Code.CLOCK, Severity.DOUBTFUL, "b"),))]
    assert done_digests(read_record(path), "i" * 64, 0) == {"d" * 64}
    assert done_digests(read_record(path), "j" * 64, 0) == set()
    assert done_digests(read_record(path), "i" * 64, 1) == set()
    assert done_digests([made(*SOUND, edition=0)], "i" * 64, 0) == set()


def test_a_signature_holds_for_every_field(tmp_path: Path) -> None:
    """Each changed field breaks it, as another key does."""
    key = Ed25519PrivateKey.generate()
    (tmp_path / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "public.pem").write_bytes(public)
    one = signed(made(*SOUND), private_key(tmp_path / "key.pem"))
    reader = public_key(tmp_path / "public.pem")
    assert is_signed(certificate_of(json.loads(json.dumps(one.as_json()))), reader)
    for other in (
        made(*SOUND),
        replace(one, image="j" * 64),
        replace(one, trials=(*SOUND, MUTATION)),
        replace(one, signature="no"),
        signed(one, Ed25519PrivateKey.generate()),
    ):
        assert not is_signed(other, reader)
    (tmp_path / "none.pem").write_text("no key")
    with pytest.raises(KeyFileError, match="openssl genpkey"):
        private_key(tmp_path / "none.pem")
    record = tmp_path / "certificates.jsonl"
    append(record, one)
    command = [str(record), "--public-key", str(tmp_path / "public.pem")]
    assert CliRunner().invoke(certificates, command).exit_code == 0
    append(record, replace(one, digest="e" * 64))
    answer = CliRunner().invoke(certificates, command)
    assert (answer.exit_code, "no valid signature" in answer.output) == (EXIT_NOT_CERTIFIED, True)


def test_the_page_names_what_is_wrong_and_escapes_texts() -> None:
    """Causes are counted over tasks."""
    wrong = replace(MUTATION, earned=1.0, note="<script>")
    found = [made(*SOUND), made(*SOUND, wrong, task="b"), made(*SOUND, wrong, wrong, task="c")]
    assert causes(found) == [("mutation: emptied earned 1", ["b", "c"])]
    total = figures(found)
    assert (total.mutations, total.equivalents, total.flakes) == ((3, 6), (3, 3), (0, 3))
    page = certificates_page(found)
    assert "mutation: emptied earned 1" in page
    assert "&lt;script&gt;" in page
    assert "<script>" not in page
    assert "Write <b>" not in page


# ---- the home -------------------------------------------------------------------------------------


def test_the_listing_program_finds_files_folders_and_links(tmp_path: Path) -> None:
    """Its output is read as it is written; caches are left out."""
    home, out = tmp_path / "home", tmp_path / "list.json"
    (home / "Documents").mkdir(parents=True)
    (home / ".cache").mkdir()
    (home / ".cache" / "x").write_text("x")
    (home / "Documents" / "a b.txt").write_text("text")
    (home / "Documents" / "a b.txt").chmod(0o640)
    (home / "link").symlink_to("Documents")
    program = LIST_PROGRAM.replace("'/home/user'", repr(str(home))).replace(
        "'/tmp/osgym-certify.json'",
        repr(str(out)),
    )
    subprocess.run(["python3", "-I", "-c", program], check=True)
    found = read_listing(out.read_bytes())
    digest = "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1"
    assert found[f"{home}/Documents/a b.txt"] == Entry("file", 0o640, 4, digest)
    assert found[f"{home}/link"].kind == "other"
    assert not any(".cache/" in path for path in found)
    with pytest.raises(ValueError, match="object"):
        read_listing(b"[]")


def _file(digest: str, mode: int = 0o644) -> Entry:
    return Entry("file", mode, len(digest), digest)


def test_changes_are_found_by_content_and_permissions() -> None:
    """Files and folders, new, changed and gone."""
    before = {"/home/user/a": _file("1"), "/home/user/b": _file("2"), "/home/user/c": _file("3")}
    folder = Entry("folder", 0o755, 0, "")
    after = {
        "/home/user/a": _file("1"),
        "/home/user/b": _file("2", 0o600),
        "/home/user/d": _file("4"),
        "/home/user/new": folder,
    }
    found = changes(before, after)
    assert found.files == ("/home/user/b", "/home/user/d")
    assert (found.folders, found.removed) == (("/home/user/new",), ("/home/user/c",))
    assert changes(after, after) == Changes((), (), ())
    assert topmost_new("/home/user/x/y/z", after) == "/home/user/x"
    assert topmost_new("/home/user/new/y", after) == "/home/user/new/y"
    assert is_hidden("/home/user/.config/vlc/vlcrc")
    assert not is_hidden("/home/user/Documents/a.txt")


# ---- edits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plain", "with 'quotes' and $(touch x)", "-rf"])
def test_edits_are_done_by_quoted_commands(tmp_path: Path, name: str) -> None:
    """No name of a file is read as a command or an option."""
    path, to = tmp_path / name, tmp_path / "new folder" / name

    def run(edit: Any) -> None:
        subprocess.run(["/bin/sh", "-c", command_of(edit)], cwd=tmp_path, check=True)

    path.write_text("x")
    run(Copy(str(path), str(to)))
    assert (path.read_text(), to.read_text()) == ("x", "x")
    run(Chmod(str(path), 0o600))
    assert path.stat().st_mode & 0o777 == 0o600
    run(Remove(str(to)))
    run(Move(str(path), str(to)))
    assert (path.exists(), to.read_text()) == (False, "x")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["new folder"]
    assert shlex.split(command_of(Remove(str(path))))[2] == "--"


# ---- the choice of end states ---------------------------------------------------------------------


def test_a_limit_keeps_each_name_once_and_equivalents_first() -> None:
    """The same seed gives the same ends."""
    edit: Edit = Remove("/home/user/a")
    many = [End("emptied", str(n), Must.EARN_NOTHING, (edit,)) for n in range(30)]
    few = [End("saved again", "a", Must.EARN_ALL, (edit,)), End("moved", "a", Must.EARN_NOTHING, (edit,))]
    chosen = _limited([*many, *few], random.Random(1), 5)
    assert [end.name for end in chosen].count("emptied") == 3
    assert {end.name for end in few} < {end.name for end in chosen}
    assert chosen == _limited([*many, *few], random.Random(1), 5)
    assert _limited(few, random.Random(1), 5) == few


def test_end_states_are_made_of_the_golden_files() -> None:
    """Of every kind, reproducibly."""
    golden = GoldenEnd(
        files=(GoldenFile("/home/user/note.txt", b"milk\neggs\n", b"milk\n"),),
        modes={"/home/user/note.txt": 0o644},
        kept={"/home/user/other.txt": b"text\n"},
    )
    ends = ends_of(golden, random.Random(0), 500)
    assert {end.must for end in ends} == set(Must)
    assert all(end.edits for end in ends)
    assert any(
        isinstance(edit, Write) and edit.path == "/home/user/other.txt" for end in ends for edit in end.edits
    )
    assert ends == ends_of(golden, random.Random(0), 500)


def test_files_beside_the_task_are_spread_over_folders() -> None:
    """Small visible ones that the oracle left alone."""
    names = [*(f"/home/user/a/{n:02}" for n in range(30)), "/home/user/b/x", "/home/user/.config/y"]
    home = {name: _file("1") for name in names} | {"/home/user/big": Entry("file", 0o644, 1 << 20, "2")}
    found = kept_paths(home, home | {"/home/user/a/00": _file("9")})
    assert "/home/user/b/x" in found
    assert not {"/home/user/a/00", "/home/user/.config/y", "/home/user/big"} & set(found)


def test_what_no_task_asks_to_remove_is_lost_once_of_each_kind() -> None:
    """A hidden file, an empty folder, the settings of all programs; never a folder of a golden file."""
    folder = Entry("folder", 0o755, 0, "")
    home = {f"/home/user/{name}": folder for name in ("Documents", "Music", ".config")}
    home |= {f"/home/user/{name}": _file("1") for name in (".profile", "Documents/a", ".config/b", "c")}
    assert losses(home, ["/home/user/Documents/a"]) == {
        "hidden file: removed": "/home/user/.profile",
        "empty folder: removed": "/home/user/Music",
        "settings of all programs: removed": "/home/user/.config",
    }
    assert "settings of all programs: removed" not in losses(home, ["/home/user/.config/b"])
    assert "empty folder: removed" not in losses(home, ["/home/user/Music/new"])


def test_state_of_programs_is_probed_if_the_check_may_read_it() -> None:
    """Named in the evaluator, or known to be read."""
    task = {"evaluator": {"result": {"type": "vm_file", "path": "/home/user/.config/x/settings.ini"}}}
    hidden = [
        "/home/user/.config/x/settings.ini",
        "/home/user/.config/unrelated",
        "/home/user/.config/z/Bookmarks",
    ]
    assert worth_a_probe(hidden, task) == [hidden[0], hidden[2]]


# ---- tasks ----------------------------------------------------------------------------------------


def test_a_task_is_read_with_all_ways_beside_it(tmp_path: Path) -> None:
    """Names of a generator, too; a file that is no task is named."""
    task = {
        "id": "a",
        "instruction": "Do it.",
        "evaluator": {"func": "infeasible"},
        "osgym": {"reach": False},
    }
    path = tmp_path / "app" / "a.json"
    path.parent.mkdir()
    path.write_text(json.dumps(task))
    bare = read_subject(path, "app/a")
    assert (bare.oracle, bare.wrong) == (None, {})
    assert bare.playable()["osgym"]["reach"] is True
    done = [[{"op": "done"}]]
    ways = {"oracle": done, "near": done, "wrong": {"b": done}, "right": {"c": done}, "script": "pass"}
    path.with_suffix(".oracle.json").write_text(json.dumps(ways))
    whole = read_subject(path, "app/a")
    assert (list(whole.wrong), list(whole.right), whole.script) == (["near miss", "b"], ["c"], "pass")
    assert whole.digest == bare.digest == task_digest({**task, "osgym": {}})
    assert whole.digest != task_digest({**task, "instruction": "Do it!"})
    (tmp_path / "app" / "b.json").write_text('{"id": "b", "instruction": "x"}')
    found, wrong = subjects([str(tmp_path)], tmp_path / "out", [0], [1])
    assert ([one.name for one in found], len(wrong)) == (["app/a"], 1)
    assert "b.json" in wrong[0]
    with pytest.raises(SubjectError, match="oracle"):
        path.with_suffix(".oracle.json").write_text('{"oracle": 3}')
        read_subject(path, "app/a")


def test_tasks_of_families_come_with_all_their_ways(tmp_path: Path) -> None:
    """An unknown name says so."""
    found, wrong = subjects(["edit.lines"], tmp_path, [0, 1], [1, 2])
    assert (len(found), wrong) == (4, [])
    assert all(one.oracle and len(one.wrong) >= 2 for one in found)
    with pytest.raises(UnknownName, match=r"edit\.line'"):
        subjects(["edit.line"], tmp_path, [0], [1])
    answer = CliRunner().invoke(certify, ["edit.line", "--out", str(tmp_path)])
    assert (answer.exit_code, "installed generator" in answer.output) == (2, True)
    assert CliRunner().invoke(certify, ["edit.lines", "--levels", "x"]).exit_code == 2


def test_files_that_are_no_tasks_are_named(tmp_path: Path) -> None:
    """Before any host is asked; so is a page that cannot be written."""
    (tmp_path / "bad.json").write_text('{"id": 1')
    answer = CliRunner().invoke(certify, [str(tmp_path / "bad.json"), "--out", str(tmp_path / "out")])
    assert answer.exit_code == 2
    assert "bad.json: the file is no JSON: Expecting" in answer.output
    append(tmp_path / "record.jsonl", made(*SOUND))
    page = tmp_path / "bad.json" / "page.html"
    answer = CliRunner().invoke(certificates, [str(tmp_path / "record.jsonl"), "--page", str(page)])
    assert (answer.exit_code, "page.html" in answer.output) == (1, True)


def test_an_author_allows_ends_by_name(tmp_path: Path) -> None:
    """By a pattern, with the reason."""
    allows = [{"end": "line*", "why": "any order"}]
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"id": "a", "evaluator": {}, "osgym": {"allows": allows}}))
    one = read_subject(path, "a")
    assert one.allowance("lines reversed") == "any order"
    assert one.allowance("emptied") is None


@pytest.mark.parametrize(
    ("result", "reads"),
    [
        ({"type": "cache_file", "path": "list"}, True),
        ({"type": "vm_file", "path": "/home/user/a.csv"}, True),
        ([{"type": "vm_file", "path": ["/home/user/b", "/home/user/a.csv"]}], True),
        ({"type": "vm_file", "path": "/home/user/a.xlsx"}, False),
        ([], False),
    ],
)
def test_a_check_that_reads_what_its_preparation_made_is_prepared_for_each_end(
    tmp_path: Path, result: Any, reads: bool
) -> None:
    """Otherwise it would score the golden end again and again."""
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"id": "a", "evaluator": {"result": result}}))
    assert read_subject(path, "a").reads_preparation({"/home/user/a.csv"}) is reads


def test_an_archive_of_a_desktop_is_only_read(tmp_path: Path) -> None:
    """Links and devices in it are left out; what is no archive is refused."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, kind in (("./a b", tarfile.REGTYPE), ("./link", tarfile.SYMTYPE), ("./x", tarfile.CHRTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            member.size = 4 if kind == tarfile.REGTYPE else 0
            archive.addfile(member, io.BytesIO(b"text"))
    assert read_files(buffer.getvalue()) == {"/home/user/a b": b"text"}
    with pytest.raises(DeskError):
        read_files(b"no archive")


class WaveringDesk:
    """A desktop on which the golden end earns these rewards, one after the other."""

    def __init__(self, *rewards: float | None) -> None:
        self.rewards = list(rewards)

    async def apply(self, edits: object) -> None:
        """Does nothing."""

    async def restore(self, edits: object) -> None:
        """Does nothing."""

    async def score(self, *, prepare: bool) -> Any:
        """The next reward; None is a failure of the infrastructure."""
        assert not prepare
        reward = self.rewards.pop(0)
        failure = SimpleNamespace(code="x", message="y") if reward is None else None
        return SimpleNamespace(reward=reward, failure=failure, details=[])


@pytest.mark.parametrize(
    ("rewards", "golden", "left"),
    [
        ((0.0, 1.0), [], 0),
        ((0.0, 0.0, 1.0), [0.0], 1),  # the same end earned 0, then 1
        ((0.0, 0.0, 0.0), [], 1),  # it is not restored
        ((0.0, None), [], 1),  # a failure is no answer of the check, and is not scored again
    ],
)
async def test_a_golden_end_that_earns_two_rewards_is_a_flake(
    tmp_path: Path, rewards: tuple[float | None, ...], golden: list[float], left: int
) -> None:
    """A golden end that earns less than 1 is scored a second time; only if that earns 1 is it a flake."""
    (tmp_path / "a.json").write_text('{"id": "a", "instruction": "Do.", "evaluator": {}}')
    subject = read_subject(tmp_path / "a.json", "a")
    one = Certification(cast(Any, None), subject, Settings("i" * 64))
    ends = [
        End("first", "/home/user/a", Must.EARN_NOTHING, ()),
        End("second", "/home/user/a", Must.EARN_NOTHING, ()),
    ]
    desk = WaveringDesk(*rewards[:1], *rewards)
    found = await one._try_in_place(cast(Any, desk), ends, 2)
    assert [trial.earned for trial in one.trials if trial.kind is Kind.GOLDEN] == golden
    assert (bool(found), desk.rewards) == (bool(left), [])


def test_what_an_oracle_types_is_known(tmp_path: Path) -> None:
    """From all steps, those that wait for the final screen too."""
    (tmp_path / "a.json").write_text('{"id": "a", "instruction": "Do.", "evaluator": {}}')
    typed = [{"op": "type", "text": "figs"}, {"op": "key", "keys": ["enter"]}]
    ways = {"oracle": [typed, {"actions": [{"op": "type", "text": "pears"}], "settle": "certain"}]}
    (tmp_path / "a.oracle.json").write_text(json.dumps(ways))
    assert read_subject(tmp_path / "a.json", "a").typed == "figs\npears"
