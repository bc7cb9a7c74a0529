"""desk.preferences: switch preferences of the file manager on or off, on several pages of its dialog."""

from __future__ import annotations

import random

from osgym_tasks.desk import file_manager, home, sentence
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, HOME, Kept, every, key, line, output_check, upload
from osgym_tasks.targets import click

_COUNT = {1: 1, 2: 2, 3: 4, 4: 7, 5: 11}
_FILES = {1: 3, 2: 5, 3: 8, 4: 12, 5: 18}
_BOXES = {
    "General": (
        ("Open files with single click", "config.single_click", 0),
        ("Confirm before deleting files", "config.confirm_del", 1),
        ("Don't ask options on launch executable file", "config.quick_exec", 1),
        ("Unfold tab when files are dragged onto tab button", "ui.change_tab_on_drop", 1),
        ("Focus previous folder after coming to its parent", "ui.focus_previous", 0),
    ),
    "Display": (
        ("Show thumbnails of files", "ui.show_thumbnail", 1),
        ("Use SI decimal prefixes instead of IEC binary prefixes", "config.si_unit", 0),
        ("Treat backup files as hidden", "config.backup_as_hidden", 1),
        ("Always show full file names", "config.show_full_names", 1),
        ("Show icons of hidden files shadowed", "ui.shadow_hidden", 0),
    ),
    "Layout": (
        ("Always show the tab bar", "ui.always_show_tabs", 0),
        ("Hide expander on empty or locked folder", "config.no_child_non_expandable", 0),
        ("Trash Can", "places.places_trash", 0),
        ("Filesystem Root", "places.places_root", 0),
        ("Applications", "places.places_applications", 1),
        ("Devices", "places.places_computer", 0),
        ("Network", "places.places_network", 0),
    ),
    "Advanced": (
        ("Show only user defined templates in menu", "config.only_user_templates", 1),
        ("Show only one template for each MIME type", "config.template_type_once", 0),
        ("Run default application after creation from template", "config.template_run_app", 0),
        ("Use Application Startup Notify by default", "config.force_startup_notify", 0),
        ("Defer test for content type on folder loading", "config.defer_content_test", 0),
    ),
}
"""Boxes by page of the dialog: label, section and name in the file manager's files, and initial value."""
_FIRST = "General"
"""Page that the dialog shows at first; level 1 asks for boxes of it only."""
_LIBFM = f"{HOME}/.config/libfm/libfm.conf"
_DUMP = f"""
import configparser, sys
is_chosen, names = sys.argv[1] == "chosen", sys.argv[2:]
own = ("ui.win_width", "ui.win_height", "ui.maximized", "ui.splitter_pos")
folder = "{HOME}/.config/pcmanfm/default"
lines = []
for path in ("{_LIBFM}", f"{{folder}}/pcmanfm.conf", f"{{folder}}/desktop-items-0.conf"):
    parser = configparser.RawConfigParser(delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str
    parser.read(path)
    for section in parser.sections():
        for key, value in parser[section].items():
            name = f"{{section}}.{{key}}"
            if name not in own and (name in names) == is_chosen:
                lines.append(f"{{'' if is_chosen else path}} {{name}}={{value.strip()}}".lstrip())
print(*sorted(lines), sep="\\n")
"""
"""Script that prints the settings that its arguments name, or all others but those that a window changes."""
_BEFORE = "settings"
_WORDINGS = (
    "The file manager is open. In its preferences, {boxes}. Leave its other settings and all files as they "
    "are.",
    "Please change preferences of the file manager: {boxes}. All other settings and the files stay.",
    "Set up the file manager in its preferences: {boxes}. Change no other setting and no file.",
    "It annoys me how the open file manager works. Could you change its preferences: {boxes}? Everything "
    "else, settings and files, should stay as it is.",
    "My mother uses this computer, too, and wants the file manager that you see to work differently. In its "
    "preferences, please, {boxes}. Change nothing else.",
    "We agreed on how the file manager is set up on all our machines. On this one, its preferences are "
    "still wrong: {boxes}. No other setting may change, and no file.",
)
_TRANSLATIONS = {
    "de": (
        "Der offene Dateimanager ist falsch eingestellt. Ändere bitte in seinen Einstellungen: {boxes}. Lass "
        "alle anderen Einstellungen und die Dateien, wie sie sind.",
    ),
    "es": (
        "El gestor de archivos abierto está mal configurado. Cambia en sus preferencias: {boxes}. Los demás "
        "ajustes y los archivos se quedan como están.",
    ),
    "zh": ("打开的文件管理器设置不对。请在它的首选项中这样设置：{boxes}。其他设置和文件都不要动。",),
}
_SAID = {
    "en": ("on the page {}, switch {}", '"{}" off', '"{}" on'),
    "de": ("schalte auf der Seite {} {}", '"{}" aus', '"{}" ein'),
    "es": ("en la página {}, {}", 'desactiva "{}"', 'activa "{}"'),
    "zh": ("在 {} 页上{}", '关闭 "{}"', '打开 "{}"'),
}
"""Words for a page, for a box that is switched off and one that is switched on, by language."""
Box = tuple[str, str, int]


def _draft(dice: random.Random, level: int) -> Draft:
    root = home(f"Documents/{dice.choice(('Letters', 'Plans', 'Prices', 'Tours'))}")
    files = {f"paper{number}.txt": f"{dice.randrange(10**6)}\n" for number in range(_FILES[level])}
    offered = [(page, box) for page, boxes in _BOXES.items() for box in boxes if level > 1 or page == _FIRST]
    chosen = sorted(dice.sample(offered, _COUNT[level]), key=offered.index)
    beside = dice.choice([one for one in offered if one not in chosen])
    names = [name for _, (_, name, _) in chosen]
    rest = ["python3", "-c", _DUMP, "others", *names]
    after = sorted(f"{name}={1 - value}\n" for _, (_, name, value) in chosen)
    append = "; ".join(f"echo {one.strip().partition('.')[2]} >> {_LIBFM}" for one in after)
    shell = [[key("ctrl", "alt", "t"), {"op": "wait", "duration_ms": 1500}], line(append)]
    near = {
        "another in place of one": _switched([*chosen[:-1], beside]),
        "one more": _switched([*chosen, beside]),
        "lines appended to the file": [*shell, DONE],
    }
    if len(chosen) > 1:
        near["one forgotten"] = _switched(chosen[1:])
    return Draft(
        _WORDINGS,
        {"boxes": _said(chosen, "en")},
        [
            upload({f"{root}/{name}": text for name, text in files.items()}),
            *file_manager(root),
            {"type": "execute", "parameters": {"command": rest, "stdout": _BEFORE}},
        ],
        every(
            output_check(("python3", "-c", _DUMP, "chosen", *names), "".join(after)),
            ("literal_match", {"type": "vm_command_line", "command": rest}, Kept(_BEFORE)),
        ),
        Ways(_switched(chosen), near),
        changes=(),
        translations=_TRANSLATIONS,
        translated={language: {"boxes": _said(chosen, language)} for language in _TRANSLATIONS},
    )


def _said(chosen: list[tuple[str, Box]], language: str) -> str:
    on_page, *switches = _SAID[language]
    parts = []
    for page in _BOXES:
        boxes = [box for its_page, box in chosen if its_page == page]
        if boxes:
            said = sentence((switches[1 - value].format(label) for label, _, value in boxes), language)
            parts.append(on_page.format(page, said))
    return "; ".join(parts)


def _switched(chosen: list[tuple[str, Box]]) -> Steps:
    """Return steps that click boxes page by page, and close the dialog."""
    steps: Steps = [[key("alt", "e")], [key("up"), key("enter")]]
    shown = _FIRST
    for page in _BOXES:
        labels = [label for its_page, (label, _, _) in chosen if its_page == page]
        if labels and page != shown:
            steps.append([click("table-cell", page, app="pcmanfm")])
            shown = page
        steps += [[click("check-box", label, app="pcmanfm")] for label in labels]
    return [*steps, [click("push-button", "Close", app="pcmanfm")], DONE]


FAMILY = Family("desk.preferences", 1, _draft, ("pcmanfm",))
