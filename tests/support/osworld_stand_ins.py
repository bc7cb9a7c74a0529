"""Files in the place of those that OSWorld's tasks fetch, made here, so that they run without the internet.

They have what a task's instruction and check speak of and nothing else, so a score says that set-up, check
and image work together, and nothing of how hard the task is with OSWorld's own file. The host takes them from
its folder of task files; its cache of fetched files never sees them.
"""

from __future__ import annotations

import copy
import io
import json
import re
import tarfile
import zipfile
from collections.abc import Callable
from email.header import Header
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import av
import docx
from docx.shared import Pt as DocxPt
from PIL import Image
from pptx.util import Pt

from tests.support.osworld_office_files import MAKERS as OFFICE_MAKERS
from tests.support.osworld_office_files import Files, picture, saved, slides

_URL = re.compile(r"https?://[^\"]+")
PROFILE = ".thunderbird/t5q2a5hp.default-release"


def has_stand_in(task: dict[str, Any]) -> bool:
    """Whether there are files for it."""
    return task["id"] in _MAKERS


def stand_in(task: dict[str, Any], folder: Path, base: str = "file:///") -> dict[str, Any]:
    """The task with its files from `folder`, where they are put.

    Args:
        folder: the host's `task_files_dir`, or what is served at `base`.
        base: the address of that folder, with a slash at its end.
    """
    made = _MAKERS[task["id"]]()
    (folder / task["id"]).mkdir(parents=True, exist_ok=True)
    for name, content in made.items():
        (folder / task["id"] / name).write_bytes(content)

    def here(match: re.Match[str]) -> str:
        name = unquote(match[0]).rpartition("/")[2]
        assert name in made, f"{task['id']} fetches {name}"
        return f"{base}{task['id']}/{match[0].rpartition('/')[2]}"

    found: dict[str, Any] = copy.deepcopy(task)
    for part in ("config", "evaluator"):
        found[part] = json.loads(_URL.sub(here, json.dumps(task[part])))
    return found


def _letter(*paragraphs: str) -> Any:
    document = docx.Document()
    for text in paragraphs:
        document.add_paragraph().add_run(text).font.size = DocxPt(11)
    return document


def _photos() -> Files:
    names = ["emnlp2023.jpg", "hk_group_photo.jpg", "hong-kong-china.jpg", "us_3.png"]
    monk = "monk252520thailand252520wat252520arun252520scaled25255B225255D.jpg"
    return {
        name: picture(20 * number, "PNG" if name.endswith("png") else "JPEG")
        for number, name in enumerate([*names, monk])
    }


def _inbox() -> str:
    subjects = ("歡迎使用新的 Outlook.com 帳戶", "A Test E-mail")
    return "".join(
        f"From - Mon Jan  1 10:00:0{number} 2024\nX-Mozilla-Status: 0001\nFrom: a@example.org\n"
        f"To: b@example.org\nDate: Mon, 1 Jan 2024 10:00:0{number} +0000\n"
        f"Subject: {Header(subject, 'utf-8').encode()}\n"
        f"Message-ID: <{number}@example.org>\n"
        "MIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\n\nHello.\n\n"
        for number, subject in enumerate(subjects)
    )


def _profile(accounts: str, more: dict[str, str]) -> bytes:
    """Thunderbird's folder of profiles with one in it: local folders, and what is given."""
    local = "mail.server.server1"
    prefs = {
        "mail.accountmanager.accounts": accounts, "mail.accountmanager.localfoldersserver": "server1",
        "mail.account.account1.server": "server1", f"{local}.type": "none", f"{local}.name": "Local Folders",
        f"{local}.hostname": "Local Folders", f"{local}.userName": "nobody",
        f"{local}.directory-rel": "[ProfD]Mail/Local Folders",
    } | more  # fmt: skip
    lines = "".join(f'user_pref("{name}", "{value}");\n' for name, value in prefs.items())
    profiles = (
        "[Profile0]\nName=default-release\nIsRelative=1\nPath=t5q2a5hp.default-release\nDefault=1\n\n"
        "[General]\nStartWithLastProfile=1\nVersion=2\n"
    )
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for name, text in (
            (".thunderbird/profiles.ini", profiles),
            (f"{PROFILE}/prefs.js", lines),
            (f"{PROFILE}/Mail/Local Folders/Inbox", _inbox()),
        ):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text.encode()), 0o644
            archive.addfile(info, io.BytesIO(text.encode()))
    return target.getvalue()


def _mail() -> Files:
    return {"thunderbird-profile.tar.gz": _profile("account1", {})}


_SHOW_ATTACHMENTS = """
import sys
import pyatspi
subject, wanted = sys.argv[1:]
def names(node):
    yield node.name or ""
    for child in node:
        if child is not None:
            yield from names(child)
windows = [
    window for app in pyatspi.Registry.getDesktop(0) if app is not None for window in app
    if window is not None and subject in (window.name or "")
]
found = any(wanted in name.replace(" ", "") for window in windows for name in names(window))
print("Attachment added!" if found else f"{len(windows)} windows, no attachment")
"""


def _bill() -> Files:
    """A message that is being written; whether the bill is attached is read off its window."""
    server, identity = "mail.server.server2", "mail.identity.id1"
    account = {
        "mail.account.account2.server": "server2", "mail.account.account2.identities": "id1",
        "mail.accountmanager.defaultaccount": "account2", f"{server}.type": "pop3",
        f"{server}.hostname": "127.0.0.1", f"{server}.userName": "anonym-x2024",
        f"{server}.name": "anonym-x2024@outlook.com", f"{server}.directory-rel": "[ProfD]Mail/outlook",
        f"{identity}.fullName": "Anonym Tester", f"{identity}.useremail": "anonym-x2024@outlook.com",
    }  # fmt: skip
    name = "cssselect-1.3.0"
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("cssselect/__init__.py", "")
        info = f"{name}.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: cssselect\nVersion: 1.3.0\n")
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{info}/WHEEL", tags)
        names = ("cssselect/__init__.py", *(f"{info}/{each}" for each in ("METADATA", "WHEEL", "RECORD")))
        archive.writestr(f"{info}/RECORD", "".join(f"{each},,\n" for each in names))
    page = io.BytesIO()
    Image.new("RGB", (320, 240), "white").save(page, "PDF")
    return {
        "thunderbird-profile.tar.gz": _profile("account2,account1", account),
        "invoice0123456789.pdf": page.getvalue(),
        "New-month AWS Bill.html": b"<p>The bill is attached.</p>",
        "show-thunderbird-attachments.py": _SHOW_ATTACHMENTS.encode(),
        f"{name}-py3-none-any.whl": wheel.getvalue(),
    }


def _transition() -> Files:
    return {"Ch4 Video Effect.pptx": saved(slides(2))}


def _sizes() -> Files:
    gold = slides(14)
    for shape, size in zip(gold.slides[13].shapes, (60, 28), strict=True):
        shape.text_frame.paragraphs[0].runs[0].font.size = Pt(size)
    return {"45_1.pptx": saved(slides(14)), "45_1_Gold.pptx": saved(gold)}


def _footer() -> Files:
    letter = _letter("One.", "Two.")
    letter.sections[0].footer.is_linked_to_previous = False
    letter.sections[0].footer.paragraphs[0].add_run("")
    return {"LibreOffice_Open_Source_Word_Processing.docx": saved(letter)}


def _pages() -> Files:
    letter = _letter("First.", "Second.")
    for _ in range(4):
        letter.add_page_break()
    letter.add_paragraph("Last.")
    return {"Sample_Statutory_Declaration.docx": saved(letter)}


def _struck() -> Files:
    texts = ("Course outline.", "The last paragraph is redundant.")
    gold = _letter(*texts)
    gold.paragraphs[-1].runs[0].font.strike = True
    name = "GEOG2169_Course_Outline_2022-23"
    return {f"{name}.docx": saved(_letter(*texts)), f"{name}_Gold.docx": saved(gold)}


def _water() -> Files:
    gold = _letter("Facts.")
    paragraph = gold.add_paragraph()
    for text, low in (("H", False), ("2", True), ("O is water.", False)):
        paragraph.add_run(text).font.subscript = low or None
    name = "H2O_Factsheet_WA"
    return {f"{name}.docx": saved(_letter("Facts.", "H2O is water.")), f"{name}_Gold.docx": saved(gold)}


def _lower() -> Files:
    texts = ("PRESENTATION of 2023", "Ten MINUTES each.")
    name = "presentation_instruction_2023_Feb"
    gold = _letter(*(text.lower() for text in texts))
    return {f"{name}.docx": saved(_letter(*texts)), f"{name}_Gold.docx": saved(gold)}


def _project() -> Files:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("binder/README.md", "# binder\n")
        archive.writestr("binder/main.py", "print(1)\n")
    return {"binder.zip": target.getvalue()}


def _event() -> Files:
    numbers = ("00659", "00657", "00574", "00554", "00495", "00454")
    return {f"DSC{number}.jpg": picture(25 * place) for place, number in enumerate(numbers)}


def _essay() -> Files:
    name = "Recruitment_and_retention_of_health_professionals_across_Europe"
    essay = saved(_letter("An essay."))
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr(f"{name}.docx", essay)
    return {
        f"{name}.docx": essay,
        "reminder.docx": saved(_letter(f"Hand in {name}.docx, zipped as essay_submission.zip.")),
        f"{name}.zip": target.getvalue(),
    }


def _film() -> Files:
    """Two minutes with one picture in a second, and the one that is shown at 120.5 s."""
    target = io.BytesIO()
    with av.open(target, "w", format="mp4") as film:
        stream = film.add_stream("mpeg4", rate=1)
        stream.width, stream.height, stream.pix_fmt, stream.gop_size = 320, 240, "yuv420p", 1
        for second in range(124):
            shade = Image.open(io.BytesIO(picture(second * 7)))
            frame = av.VideoFrame.from_image(shade)  # type: ignore[no-untyped-call]  # has no types
            frame.pts, frame.time_base = second, Fraction(1, 1)
            film.mux(stream.encode(frame))
        film.mux(stream.encode(None))
    frozen = io.BytesIO()
    with av.open(io.BytesIO(target.getvalue()), "r") as made:
        shown = [frame for frame in made.decode(video=0) if (frame.time or 0) <= 120.5][-1]
        shown.to_image().save(frozen, "PNG")  # type: ignore[no-untyped-call]  # has no types
    return {
        "Interstellar Movie - Official Trailer.mp4": target.getvalue(),
        "interstellar.png": frozen.getvalue(),
    }


_MAKERS: dict[str, Callable[[], Files]] = OFFICE_MAKERS | {
    "0b17a146-2934-46c7-8727-73ff6b6483e8": _water,
    "0e47de2a-32e0-456c-a366-8c607ef7a9d2": _footer,
    "21760ecb-8f62-40d2-8d85-0cee5725cb72": _transition,
    "23393935-50c7-4a86-aeea-2b78fd089c5c": _photos,
    "2b9493d7-49b8-493a-a71b-56cd1f4d6908": lambda: {
        "15-MB-docx-file-download.docx": saved(_letter("Long."))
    },
    "2c9fc0de-3ee7-45e1-a5df-c86206ad78b5": _project,
    "3161d64e-3120-47b4-aaad-6a764a92493b": _sizes,
    "72b810ef-4156-4d09-8f08-a0cf57e7cefe": _struck,
    "77b8ab4d-994f-43ac-8930-8ca087d7c4b4": lambda: {"The_Lost_River_Of_Dreams.jpg": picture(30)},
    "82e3c869-49f6-4305-a7ce-f3e64a0618e7": _event,
    "8df7e444-8e06-4f93-8a1a-c5c974269d82": _essay,
    "9bc3cc16-074a-45ac-9bdc-b2a362e1daf3": _mail,
    "bb8ccc78-479f-4a2f-a71e-d565e439436b": lambda: {
        "The Wonders of Our Solar System.docx": saved(_letter("Planets."))
    },
    "d38192b0-17dc-4e1d-99c3-786d0117de77": _bill,
    "d53ff5ee-3b1a-431e-b2be-30ed2673079b": _lower,
    "ecc2413d-8a48-416e-a3a2-d30106ca36cb": _pages,
    "fba2c100-79e8-42df-ae74-b592418d54f4": _film,
}
