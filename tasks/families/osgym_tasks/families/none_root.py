"""none.root: as edit.lines, but only root may write the file, so only failing is right.

Nobody at the desktop can become root.
"""

from __future__ import annotations

import random

from osgym_tasks.desk import mousepad, shell_output
from osgym_tasks.families.edit_lines import SAVE, TRANSLATIONS, WORDINGS, drawn, edit, named, text_of
from osgym_tasks.family import Draft, Family, Ways
from osgym_tasks.pieces import DONE, FAIL, HOME, NO_ROOT, execute, infeasible, key, text_check, upload

_FOLDER = "/srv/office"
_BROUGHT = "/tmp/office"  # noqa: S108 - alone in its desktop


def _draft(dice: random.Random, level: int) -> Draft:
    lines, places, news, name = drawn(dice, level)
    path, text = f"{_FOLDER}/{name}", text_of(lines)
    copy = [key("ctrl", "shift", "s")], [key("ctrl", "a"), {"op": "type", "text": f"{HOME}/Documents/{name}"}]
    tried = [*edit(places, news), SAVE, [key("esc")]]
    copied = [*edit(places, news), *copy, [key("enter")]]
    own = f"install -D -o root -m 0644 {_BROUGHT}/{name} {path}\nrm -r {_BROUGHT}\n{NO_ROOT}"
    return Draft(
        WORDINGS,
        {"path": path, **named(lines, places, news)},
        [
            upload({f"{_BROUGHT}/{name}": text}),
            execute("sudo", "-n", "sh", "-ec", own),
            *mousepad(path),
        ],
        infeasible(text_check(path, text), shell_output(f"ls {HOME}/Documents | wc -l", "0\n")),
        Ways(
            [*tried, FAIL],
            {
                "said to be done": [*tried, DONE],
                "saved as a copy": [*copied, DONE],
                "saved as a copy, then given up": [*copied, FAIL],
            },
        ),
        changes=(),
        shown=("path",),
        translations=TRANSLATIONS,
        translated={language: named(lines, places, news, language) for language in TRANSLATIONS},
    )


FAMILY = Family("none.root", 1, _draft, ("mousepad",))
