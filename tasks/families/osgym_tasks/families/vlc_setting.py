"""vlc.setting: switch preferences of VLC's interface on or off, and save them."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Any

from osgym_tasks.desk import sentence
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, HOME, Kept, every, keep_file, key, launch, line, vm_file

_COUNT = {1: 1, 2: 2, 3: 3, 4: 5, 5: 8}
_BOXES = {
    6: ("Show controls in full screen mode", "qt-fs-controller", 1),
    7: ("Integrate video in interface", "embedded-video", 1),
    8: ("Resize interface to video size", "qt-video-autoresize", 0),
    9: ("Start in minimal view mode", "qt-minimal-view", 0),
    10: ("Pause playback when minimized", "qt-pause-minimized", 0),
    11: ("Show systray icon", "qt-system-tray", 0),
    14: ("Allow only one instance", "one-instance", 0),
    15: ("Use only one instance when started from file manager", "one-instance-when-started-from-file", 1),
    16: ("Display playlist tree", "playlist-tree", 0),
    17: ("Pause on the last frame of a video", "play-and-pause", 0),
    19: ("Save recently played items", "qt-recentplay", 1),
    21: ("Allow metadata network access", "metadata-network-access", 0),
}
"""Boxes by the number of Tabs that reach them: label, name in VLC's file, and initial value."""
_NEAR = 16
"""Last box that level 1 asks for; those below it take many more keys."""
_WORDINGS = (
    "In VLC's preferences (Interface), switch {boxes}. Leave the other settings as they are, and save.",
    "VLC is open. Under Interface in its preferences, please switch {boxes}; save, and change nothing else.",
    "Set up VLC for me: in its interface settings switch {boxes}. Save the preferences; the others stay.",
    "My nephew has played with VLC, and now it behaves oddly. In its preferences, under Interface, please "
    "switch {boxes}, and save. Everything else stays.",
    "I use VLC for talks and want it to stay out of the way. Could you set {boxes} in its interface "
    "preferences? Save them, and change no other setting.",
    "VLC on this machine should work like the one at home: {boxes}, all under Interface in the "
    "preferences. Save that, please, and leave the rest alone.",
)
_TRANSLATIONS = {
    "de": (
        'Jemand hat VLC verstellt. Schalte in den Einstellungen unter "Interface" bitte um: {boxes}. '
        "Speichere, und ändere keine andere Einstellung.",
    ),
    "es": (
        'Alguien ha tocado VLC. En las preferencias, en "Interface", cambia esto: {boxes}. Guarda y no '
        "cambies ningún otro ajuste.",
    ),
    "zh": (
        '有人动过 VLC 的设置。请在首选项的 "Interface" 中这样设置：{boxes}。然后保存，不要改动其他设置。',
    ),
}
_SWITCH = {
    "en": ('"{}" on', '"{}" off'),
    "de": ('"{}" ein', '"{}" aus'),
    "es": ('activa "{}"', 'desactiva "{}"'),
    "zh": ('打开 "{}"', '关闭 "{}"'),
}
"""Words for a box that is switched on and one that is switched off, by language."""
_SETTINGS = f"{HOME}/.config/vlc/vlcrc"
_LOST = ["qt-updates-notif"]
"""Settings of the image that its VLC does not know, and so does not save."""
_DEFAULTS = ["http-port", "metadata-network-access", "one-instance"]
"""Settings of the image that have VLC's default, and so are saved as comments."""
_BEFORE = "settings"
"""Name of the kept file of settings."""
_SAVE: Steps = [[key("alt", "s")], DONE]


def _draft(dice: random.Random, level: int) -> Draft:
    offered = [at for at in sorted(_BOXES) if level > 1 or at <= _NEAR]
    chosen = sorted(dice.sample(offered, _COUNT[level]))
    labels = [(_BOXES[at][0], _BOXES[at][2]) for at in sorted(chosen, key=_by_label)]
    said = {
        language: sentence((words[value].format(label) for label, value in labels), language)
        for language, words in _SWITCH.items()
    }
    beside = dice.choice([at for at in _BOXES if at not in chosen])
    changed = {name: 1 - value for _, name, value in map(_BOXES.__getitem__, chosen)}
    rules = {"changed": changed, "lost": _LOST, "defaults": _DEFAULTS}
    near = {
        "cancelled": [*_toggled(chosen), [key("alt", "c")], DONE],
        "another in place of one": [*_toggled([beside, *chosen[1:]]), *_SAVE],
        "one more": [*_toggled([beside, *chosen]), *_SAVE],
    }
    shell = [[key("ctrl", "alt", "t"), {"op": "wait", "duration_ms": 1500}]]
    written = "; ".join(f"echo {name}={value} >> {_SETTINGS}" for name, value in changed.items())
    near["lines appended to the file"] = [*shell, line(written), DONE]
    if len(chosen) > 1:
        near["one forgotten"] = [*_toggled(chosen[1:]), *_SAVE]
    start = launch("VLC media player", "vlc", "--no-audio")
    focus: dict[str, Any] = {"type": "activate_window", "parameters": {"window_name": "VLC media player"}}
    return Draft(
        _WORDINGS,
        {"boxes": said["en"]},
        [keep_file(_SETTINGS, _BEFORE), *start, focus],
        every(("check_vlc_settings", vm_file(_SETTINGS), Kept(_BEFORE, rules))),
        Ways([*_toggled(chosen), *_SAVE], near),
        translations=_TRANSLATIONS,
        translated={language: {"boxes": said[language]} for language in _TRANSLATIONS},
        changes=(),
    )


def _by_label(at: int) -> str:
    return _BOXES[at][0]


def _toggled(places: Collection[int]) -> Steps:
    """Return steps from the last box to the first, since a changed box may add another after it."""
    last, *others = sorted(places, reverse=True)
    steps: Steps = [[key("ctrl", "p")], [*([key("tab")] * last), key("space")]]
    for before, at in zip([last, *others], others, strict=False):
        steps.append([*([key("shift", "tab")] * (before - at)), key("space")])
    return steps


FAMILY = Family("vlc.setting", 6, _draft, ("vlc",), "full")
