"""OSWorld's metrics over sounds, videos, tags, archives, e-books, databases, trees: what earns 1, what 0."""

from __future__ import annotations

import gzip
import io
import sqlite3
import tarfile
import zipfile
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw
from tests.support.media_files import deck, dying_tone, melody, wav

from osgym_host.tasks.evaluator.inputs import InputFile, Unreadable
from osgym_host.tasks.evaluator.registry import METRICS, READERS, Score
from osgym_osworld.formats.perceptual_hash import perceptual_hash


def given(data: bytes | str, role: str = "result", name: str = "f") -> InputFile:
    """A file as a metric gets it."""
    return InputFile(-1, name, role, data.encode() if isinstance(data, str) else data)


def score(name: str, result: object, expected: object = None, **options: object) -> float:
    """The score of one metric."""
    value = METRICS[name].function(result, expected, **options)
    return value.score if isinstance(value, Score) else float(value)


def refused(name: str, result: object, expected: object = None, **options: object) -> str:
    """Whose fault it is that a metric cannot read its files."""
    with pytest.raises(Unreadable) as caught:
        score(name, result, expected, **options)
    return caught.value.role


def test_sounds_score_as_theirs_do() -> None:
    """The figures are those of OSWorld's own, run with librosa 0.11 and fastdtw 0.3.4 on these files."""
    gold = given(wav(melody()), "expected")
    late = np.concatenate([np.zeros(5000), melody()])[: len(melody()) - 777]
    assert score("compare_audios", given(wav(melody())), gold) == pytest.approx(1.0, abs=1e-7)
    assert score("compare_audios", given(wav(late)), gold) == pytest.approx(0.9492028, abs=1e-5)
    assert score("compare_audios", given(wav(dying_tone())), gold) == pytest.approx(0.5155638, abs=1e-5)
    # played at twice the rate; what differs is how each brings it to 22,050 Hz
    fast = given(wav(melody()[: len(melody()) // 44100 * 44100], 44100))
    assert score("compare_audios", fast, gold) == pytest.approx(0.4832573, abs=0.01)


def test_broken_sounds() -> None:
    """Whose file is broken is to blame; an empty sound is like no other."""
    gold = given(wav(melody()), "expected")
    assert refused("compare_audios", given(b"RIFF" + b"\xff" * 400), gold) == "result"
    assert refused("compare_audios", given(wav(melody())), given(b"no sound", "expected")) == "expected"
    assert refused("compare_audios", given("#EXTM3U\nfile:///etc/passwd\n"), gold) == "result"
    assert score("compare_audios", given(wav(np.zeros(0))), gold) == 0


def film(*shades: int, shift: int = 0) -> bytes:
    """A film of one picture for each shade."""
    frames = []
    for shade in shades:
        image = Image.linear_gradient("L").resize((64, 48)).rotate(shade)
        ImageDraw.Draw(image).ellipse((5 + shift, 5, 25 + shift, 30), fill=shade)
        frames.append(image.convert("P"))
    buffer = io.BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:], duration=40)
    return buffer.getvalue()


def test_videos() -> None:
    """The same frames; a few may differ, a shorter one is wrong, a broken one is the result's fault."""
    gold = given(film(*range(0, 180, 15)), "expected")
    assert score("compare_videos", given(film(*range(0, 180, 15))), gold) == 1
    assert score("compare_videos", given(film(*range(0, 120, 15))), gold) == 0
    assert score("compare_videos", given(film(*range(180, 0, -15), shift=20)), gold) == 0
    assert score("compare_videos", given(film(0, 15)), given(film(0, 90), "expected")) == 1
    assert refused("compare_videos", given(b"GIF89a" + b"\xff" * 99), gold) == "result"
    assert refused("compare_videos", given(b""), gold) == "result"


def test_a_pictures_hash_is_the_common_one() -> None:
    """The figure is that of the package imagehash on the same picture."""
    image = Image.linear_gradient("L").resize((64, 48)).convert("RGB")
    draw = ImageDraw.Draw(image)
    draw.ellipse((5, 5, 25, 30), fill=(200, 90, 80))
    draw.rectangle((35, 10, 60, 20), fill=(60, 90, 150))
    assert f"{perceptual_hash(image):016x}" == "e161e11e1e5e1e1e"


def tagged(**frames: str) -> bytes:
    """The tags of an MP3 file (ID3v2.4) by frame."""
    body = b"".join(
        name.encode() + bytes([0, 0, 0, len(text) + 1, 0, 0, 3]) + text.encode()
        for name, text in frames.items()
    )
    return b"ID3\x04\0\0\0\0\0" + bytes([len(body)]) + body


def test_tags_of_mp3_files() -> None:
    """Title and artist by their conditions; a file without tags is no answer."""
    rules = {"title": {"method": "eq", "ref": "Song"}, "artist": {"method": "eq", "ref": "Ann"}}
    assert score("check_mp3_meta", given(tagged(TIT2="Song", TPE1="Ann")), rules) == 1
    assert score("check_mp3_meta", given(tagged(TIT2="Song")), rules) == 0
    assert refused("check_mp3_meta", given(b"\xff\xfb" * 100), rules) == "result"


def zipped(members: dict[str, bytes]) -> bytes:
    """A zip archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def tarred(members: dict[str, bytes], mode: str = "w:gz") -> bytes:
    """A tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


TWO = {"d/a.txt": b"one", "d/b.txt": b"two"}


@pytest.mark.parametrize("packed", [zipped(TWO), *(tarred(TWO, f"w{c}") for c in ("", ":gz", ":bz2", ":xz"))])
def test_archives(packed: bytes) -> None:
    """The files of a folder by name, each compared as its type says; the mean is the score."""
    gold = given(zipped(TWO), "expected")
    assert score("compare_archive", given(packed), gold, file_path="d") == 1
    half = given(zipped({**TWO, "d/b.txt": b"three"}))
    assert score("compare_archive", half, given(packed, "expected"), file_path="d") == 0.5
    assert score("compare_archive", given(zipped({"d/a.txt": b"one"})), gold, file_path="d") == 0
    assert (
        score("compare_archive", given(zipped({"d/a.txt/x": b"one", "d/b.txt": b"two"})), gold, file_path="d")
        == 0.5
    )
    assert refused("compare_archive", given(packed), gold, file_path="elsewhere") == "expected"


def test_what_archives_are_compared_by() -> None:
    """A type that is not there is named; damaged members count 0."""
    assert METRICS["compare_archive"].unsupported({"file_type": "cad"}) == ["file_type cad"]
    assert METRICS["compare_archive"].unsupported({"file_type": "pdf"}) == []
    page = io.BytesIO()
    Image.new("RGB", (2, 2)).save(page, "PDF")
    gold = given(zipped({"a.pdf": page.getvalue(), "b.pdf": page.getvalue()}), "expected")
    broken = given(zipped({"a.pdf": page.getvalue(), "b.pdf": b"%PDF-1.7 broken"}))
    assert score("compare_archive", broken, gold, file_type="pdf") == 0.5


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"PK\x03\x04 not really", id="no zip"),
        pytest.param(tarred(TWO)[:-30], id="cut off"),
        pytest.param(gzip.compress(b"\0" * (257 << 20), 1), id="bomb"),
        pytest.param(zipped({"a": b"\0" * (65 << 20)}), id="large member"),
        pytest.param(tarred({f"{n}": b"" for n in range(5001)}), id="many members"),
    ],
)
def test_hostile_archives(data: bytes) -> None:
    """Bombs and broken files are the result's fault, and nothing is unpacked to a disk."""
    assert refused("compare_archive", given(data), given(zipped(TWO), "expected")) == "result"


def test_paths_and_links_of_archives_lead_nowhere() -> None:
    """A member's name is only a name, and a link holds nothing."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        link = tarfile.TarInfo("a.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    gold = given(zipped({"a.txt": b"x"}), "expected")
    assert score("compare_archive", given(buffer.getvalue()), gold) == 0
    assert score("compare_archive", given(tarred({"../../a.txt": b"x"})), gold) == 1


def book(text: str, identifier: str = "1") -> bytes:
    """An e-book of one page."""
    return zipped(
        {
            "toc.ncx": f'<ncx>\n<navPoint id="{identifier}">\n<text>a</text>\n</ncx>'.encode(),
            "content.opf": f"<package>\n<dc:identifier>{identifier}</dc:identifier>\n</package>".encode(),
            "page.html": f"<html><body><p>{text}</p><p>end</p></body></html>".encode(),
        }
    )


def test_e_books() -> None:
    """What is made anew for each copy does not count, text does."""
    gold = given(book("hello"), "expected")
    assert score("compare_epub", given(book("hello", "2")), gold) == 1
    assert 0.5 < score("compare_epub", given(book("other")), gold) < 1
    assert score("compare_epub", given(zipped({"x": b""})), gold) == 0
    assert refused("compare_epub", given(b"no book"), gold) == "result"


def database() -> bytes:
    """A small database."""
    connection = sqlite3.connect(":memory:")
    connection.executescript("CREATE TABLE mails (starred); INSERT INTO mails VALUES (1), (0)")
    data = bytes(connection.serialize())
    connection.close()
    return data


def test_databases() -> None:
    """What a query gives; a broken file is the result's fault, a broken query the task's."""
    some = {"sql": "SELECT sum(starred) > 0 FROM mails"}
    assert score("run_sqlite3", given(database()), some) == 1
    assert score("run_sqlite3", given(database()), {"sql": "SELECT 1 FROM mails WHERE starred = 7"}) == 0
    assert refused("run_sqlite3", given(database()), {"sql": "SELEKT 1"}) == "expected"
    for wrong in ("SELECT 1 FROM gone WHERE", "SELECT nosuch(starred) FROM mails"):
        assert refused("run_sqlite3", given(database()), {"sql": wrong}) == "expected"
    assert refused("run_sqlite3", given(database()), {"sql": "SELECT 1 FROM gone"}) == "result"
    assert refused("run_sqlite3", given(database()[:1500] + b"\xff" * 3000), some) == "result"
    assert refused("run_sqlite3", given(b"SQLite format 3\0"), some) == "result"


@pytest.mark.parametrize(
    "hostile",
    [
        "CREATE VIEW mails AS SELECT nosuch(1) AS starred",
        "CREATE TABLE a (starred); PRAGMA writable_schema = ON;"
        "UPDATE sqlite_master SET sql = 'CREATE TABLE mails (starred) syntax error', name = 'mails'",
        "CREATE VIEW mails AS SELECT load_extension('x') AS starred",
    ],
)
def test_a_hostile_database_is_the_results_fault(hostile: str) -> None:
    """A view that calls a missing function, or a malformed schema, is never taken for a wrong query."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(hostile)
    data = bytes(connection.serialize())
    connection.close()
    assert (
        refused("run_sqlite3", given(data), {"sql": "SELECT count(*) FROM mails WHERE starred"}) == "result"
    )


TREE = (
    '<desktop-frame xmlns:attr="https://accessibility.ubuntu.example.org/ns/attributes"'
    ' xmlns:st="https://accessibility.ubuntu.example.org/ns/state">'
    '<application name="Mail"><page-tab-list attr:id="tabs"><page-tab name="Inbox" st:selected="true">'
    "in</page-tab></page-tab-list></application></desktop-frame>"
)


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ({"selectors": ['application[name=Mail] page-tab-list[attr|id="tabs"]>page-tab[name*="box"]']}, 1),
        ({"selectors": ["page-tab[name=Outbox]"]}, 0),
        ({"xpath": "//page-tab[@st:selected='true']"}, 1),
        ({"xpath": "//page-tab[@st:selected='false']"}, 0),
        ({"xpath": "//page-tab", "text": "in"}, 1),
        ({"xpath": "//page-tab", "text": "out"}, 0),
        ({"xpath": "//page-tab", "text": "inn", "exact": False}, 0.8),
    ],
)
def test_accessibility_trees(rule: dict[str, Any], wanted: float) -> None:
    """Elements by selector and by path, with their text."""
    assert score("check_accessibility_tree", given(TREE), [rule]) == pytest.approx(wanted)


def test_broken_trees_and_rules() -> None:
    """Entities and broken XML are the result's fault, a wrong selector is the task's."""
    rule = {"xpath": "//a"}
    assert refused("check_accessibility_tree", given("<a>"), [rule]) == "result"
    assert (
        refused("check_accessibility_tree", given('<!DOCTYPE a [<!ENTITY b "c">]><a/>'), [rule]) == "result"
    )
    assert refused("check_accessibility_tree", given(TREE), [{"xpath": "//["}]) == "expected"
    assert refused("check_accessibility_tree", given(TREE), [{"selectors": ["a[b"]}]) == "expected"


def album(*colours: str) -> bytes:
    """A PDF file with a picture on each page."""
    pictures = []
    for colour in colours:
        image = Image.linear_gradient("L").resize((64, 48)).convert("RGB")
        ImageDraw.Draw(image).ellipse((5, 5, 50, 40), fill=colour)
        pictures.append(image if colour != "black" else image.rotate(90))
    buffer = io.BytesIO()
    pictures[0].save(buffer, "PDF", save_all=True, append_images=pictures[1:])
    return buffer.getvalue()


def test_pictures_of_pdf_files() -> None:
    """How many look the same, in order; another number of pictures is wrong."""
    gold = given(album("red", "white"), "expected")
    assert score("compare_pdf_images", given(album("red", "white")), gold) == 1
    assert score("compare_pdf_images", given(album("red", "black")), gold) == 0.5
    assert score("compare_pdf_images", given(album("red")), gold) == 0
    assert refused("compare_pdf_images", given(b"%PDF-1.7 broken"), gold) == "result"


def test_times_of_day() -> None:
    """A test of speed that was made just now, also across midnight; no other text will do."""

    def table(moment: datetime) -> InputFile:
        return given(f"a,b\nx,{moment:%Y/%m/%d %H:%M},9\n")

    now = datetime.now(UTC)
    assert score("compare_time_in_speedtest_results", table(now - timedelta(minutes=20)), "60") == 1
    assert score("compare_time_in_speedtest_results", table(now - timedelta(hours=3)), "60") == 0
    assert score("compare_time_in_speedtest_results", given("a\n"), "60") == 0


def test_yaml() -> None:
    """Plain values count; a tag that would make something else is the result's fault."""
    rules = {"expect": [{"key": ["author", "name"], "method": "eq", "ref": "Ann"}]}
    assert score("check_json", given("author:\n  name: Ann\n"), rules, is_yaml=True) == 1
    assert score("check_json", given("author: Ann\n"), rules, is_yaml=True) == 0
    attack = given("!!python/object/apply:os.system ['id']")
    assert refused("check_json", attack, rules, is_yaml=True) == "result"


def test_mail_folders() -> None:
    """The same messages in any order; deleted ones do not count."""
    one = "From - Mon\nX-Mozilla-Status: 0001\nSubject: a\n\nhello\n"
    other = "From - Tue\nX-Mozilla-Status: 0000\nSubject: b\n\nworld\n"
    gone = "From - Wed\nX-Mozilla-Status: 0009\nSubject: c\n\n!\n"
    gold = given(one + other, "expected")
    assert score("check_thunderbird_folder", given(other + gone + one), gold) == 1
    assert score("check_thunderbird_folder", given(other + gone + one), gold, remove_deleted=False) == 0
    assert score("check_thunderbird_folder", given(one), gold) == 0
    read = given(one.replace("0001", "0000") + other)
    assert score("check_thunderbird_folder", read, gold) == 0
    assert score("check_thunderbird_folder", read, gold, ignore_status=True) == 1


def test_structure_by_a_threshold() -> None:
    """Sizes are brought together, and the task says how alike is alike enough."""

    def png(image: Image.Image, role: str = "result") -> InputFile:
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        return given(buffer.getvalue(), role)

    image = Image.linear_gradient("L").convert("RGB")
    gold = png(image, "expected")
    assert score("check_structure_sim_with_threshold", png(image.resize((200, 200))), gold) == 1
    noise = png(Image.effect_noise((256, 256), 90))
    assert score("check_structure_sim_with_threshold", noise, gold) == 0
    assert score("check_structure_sim_with_threshold", noise, gold, ssim_threshold=-1.0) == 1


def test_what_slides_hold() -> None:
    """Sounds and backgrounds are taken from the package, wherever in it a relation leads; nowhere else."""
    held = {"ppt/media/s.wav": b"sound", "ppt/media/p.png": b"picture"}
    both = given(deck("../media/s.wav", "/ppt/media/p.png", held))
    assert READERS["slide_sound"](both, number=1).data() == b"sound"
    assert READERS["slide_background"](both, number=1).data() == b"picture"
    for sound, why in (
        ("../../../etc/passwd", "it has no etc/passwd"),
        ("file:///etc/passwd", "only has a link"),
    ):
        with pytest.raises(Unreadable, match=why):
            READERS["slide_sound"](given(deck(sound)), number=1)
    with pytest.raises(Unreadable, match="slide 2 has no sound"):
        READERS["slide_sound"](both, number=2)
    with pytest.raises(Unreadable, match="zip"):
        READERS["slide_background"](given(b"PK no"), number=1)
