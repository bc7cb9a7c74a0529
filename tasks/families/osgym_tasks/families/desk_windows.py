"""desk.windows: close, minimize, maximize or tile windows by their titles, among others."""

from __future__ import annotations

import random

from osgym_tasks.desk import home, sentence, shell_output
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, Kept, every, execute, key, line, upload

_WINDOWS = {1: 2, 2: 4, 3: 5, 4: 7, 5: 9}
_ACTED = {1: 1, 2: 1, 3: 2, 4: 3, 5: 4}
_TITLES = (
    "Orders",
    "Contracts",
    "Minutes",
    "Rota",
    "Budget",
    "Recipes",
    "Members",
    "Prices",
    "Letters",
    "Tickets",
)
_MONTHS = ("January", "March", "May", "July", "September", "November")
_DEEDS = {
    "close": ([key("alt", "f4")], None),
    "minimize": ([key("alt", "f9")], "minimized"),
    "maximize": ([key("alt", "f10")], "maximized"),
    "tile to the left half of the screen": ([key("win", "left")], "left"),
    "tile to the right half of the screen": ([key("win", "right")], "right"),
}
"""Changes of a window: their keys, and the state of the window afterwards."""
_STATES = r"""
width=$(xdpyinfo | sed -n 's/.*dimensions: *\([0-9]*\)x.*/\1/p')
wmctrl -lxG | while read -r id _ x y w h class _ title; do
    [ "$class" = xterm.XTerm ] || continue
    state=$(xprop -id "$id" _NET_WM_STATE)
    case $state in
        *HIDDEN*) said=minimized ;;
        *MAXIMIZED_VERT*MAXIMIZED_HORZ*|*MAXIMIZED_HORZ*MAXIMIZED_VERT*) said=maximized ;;
        *) said=plain
           if [ "$h" -gt 850 ] && [ "$w" -gt $((width / 2 - 70)) ] && [ "$w" -le $((width / 2 + 30)) ]; then
               if [ "$x" -lt 30 ]; then said=left; elif [ "$x" -gt $((width / 2 - 30)) ]; then said=right; fi
           fi ;;
    esac
    echo "$title: $said"
done | LC_ALL=C sort
"""
_PLACES = r"""
wmctrl -lpxG | while read -r id desk pid x y w h class _ title; do
    [ "$class" = xterm.XTerm ] || continue
    case "|$0|" in *"|$title|"*) ;; *) echo "$title: $id $desk $pid $x $y $w $h" ;; esac
done | LC_ALL=C sort
"""
"""Script that prints identity, place and size of the windows whose titles its argument does not list."""
_BEFORE = "places"
_WORDINGS = (
    "On this desktop, {deeds}. All other windows stay open as they are.",
    "Please tidy up the screen: {deeds}. Do not close, minimize, maximize or tile any other window.",
    "Arrange the windows: {deeds}. Every other window must stay as it is.",
    "There is too much on my screen for a video call. Could you {deeds}, and leave every other window as "
    "it is?",
    "I can't concentrate with all this open. Please {deeds}; the rest should stay just where you find it.",
    "Before I show this desktop to someone, {deeds}. Don't close, minimize, maximize or tile any other "
    "window.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    titles = _titles(dice, level)
    acted = dice.sample(titles, _ACTED[level])
    offered = list(_DEEDS)[: 3 if level < 4 else 5]
    deeds = dict(zip(acted, dice.sample(offered, len(acted)), strict=True))
    wanted = {title: _DEEDS[deeds[title]][1] if title in deeds else "plain" for title in titles}
    said = "".join(sorted(f"{title}: {how}\n" for title, how in wanted.items() if how))
    other = next(title for title in titles if title not in deeds)
    turned = {**deeds, acted[-1]: next(one for one in offered if one not in deeds.values())}
    near = {
        "another window": _ways(titles, {**dict(list(deeds.items())[1:]), other: deeds[acted[0]]}),
        "another deed": _ways(titles, turned),
    }
    if len(deeds) > 1:
        near["one forgotten"] = _ways(titles, dict(list(deeds.items())[1:]))
    look = ["bash", "-c", _PLACES, "|".join(acted)]
    shrink = f'wmctrl -F -r "{other}" -e 0,0,0,60,40'
    shell = [[key("ctrl", "alt", "t"), {"op": "wait", "duration_ms": 1500}], line(f"{shrink}; exit")]
    near["another window shrunk into a corner"] = [*_ways(titles, deeds)[:-1], *shell, DONE]
    paths = {title: home(f"Documents/{title.replace(' ', '-')}.txt") for title in titles}
    return Draft(
        _WORDINGS,
        {"deeds": sentence(_said(deed, title) for title, deed in deeds.items())},
        [
            upload({path: f"{title}\n" for title, path in paths.items()}),
            {"type": "launch", "parameters": {"command": ["bash", "-c", _start(paths)]}},
            {
                "type": "execute",
                "parameters": {
                    "command": ["bash", "-c", f"[ $(wmctrl -lx | grep -c xterm.XTerm) -eq {len(titles)} ]"],
                    "until": {"returncode": 0},
                },
            },
            execute("bash", "-c", _arrange(titles)),
            {"type": "execute", "parameters": {"command": look, "stdout": _BEFORE}},
        ],
        every(
            shell_output(_STATES, said),
            ("literal_match", {"type": "vm_command_line", "command": look}, Kept(_BEFORE)),
        ),
        Ways(_ways(titles, deeds), near),
        changes=[],
    )


def _titles(dice: random.Random, level: int) -> list[str]:
    """Draw titles from the lowest window to the topmost; from level 3 on, some differ in one word only."""
    words = dice.sample(_TITLES, _WINDOWS[level])
    if level < 3:
        return words
    first, second, *others = words
    twins = [f"{first} {month}" for month in dice.sample(_MONTHS, 2)]
    twins += [f"{second} {month}" for month in dice.sample(_MONTHS, 2)] if level >= 4 else []
    made = [*twins, *others][: _WINDOWS[level]]
    dice.shuffle(made)
    return made


def _said(deed: str, title: str) -> str:
    verb, _, where = deed.partition(" ")
    return f'{verb} the window titled "{title}"{" " if where else ""}{where}'


def _start(paths: dict[str, str]) -> str:
    return " ".join(f'xterm -T "{title}" -e less {path} &' for title, path in paths.items()) + " wait"


def _arrange(titles: list[str]) -> str:
    """Return a script that places the windows one below the other and activates each, the last one on top."""
    boxes = (f"0,{120 + 70 * at},{60 + 45 * at},700,420" for at in range(len(titles)))
    moves = [f'wmctrl -F -r "{title}" -e {box}' for title, box in zip(titles, boxes, strict=True)]
    return "; ".join([*moves, *(f'wmctrl -F -a "{title}"; sleep 0.1' for title in titles)])


def _ways(titles: list[str], deeds: dict[str, str]) -> Steps:
    """Return steps with Alt+Tab, which goes from the last used window to the minimized ones."""
    order = titles[::-1]
    steps: Steps = []
    for title, deed in deeds.items():
        far = order.index(title)
        if far:
            steps.append(
                [{"op": "key_down", "key": "alt"}, *[key("tab")] * far, {"op": "key_up", "key": "alt"}]
            )
        keys, state = _DEEDS[deed]
        steps.append(list(keys))
        order.remove(title)
        if state is not None and state != "minimized":
            order.insert(0, title)
    return [*steps, DONE]


FAMILY = Family("desk.windows", 3, _draft, ("xterm",), fixed=("distractors", "geometry"))
