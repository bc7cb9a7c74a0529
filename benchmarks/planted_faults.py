"""Faults planted in the checks of sound tasks: how many of them `osgym task certify` finds.

Sixty tasks of families are broken in twelve ways, five each, and sixty others are left as they are. All are
certified on real desktops of the small image. A broken task that is certified is a fault that was not found;
a sound one that is not certified is a false alarm.

    python -m benchmarks.planted_faults --at-once 4
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common import local_service
from osgym_certify.certificate import Verdict
from osgym_certify.record import read_record
from osgym_tasks import FAMILIES, Instance

TEXTS = ("edit.lines", "edit.merge", "edit.replace", "edit.sort_lines", "edit.two_files")
"""Families whose first metric compares the lines of one text file."""
OTHERS = ("files.rename", "files.find", "term.modes", "term.links", "desk.launcher")
SOUND = 60
LEVEL = 2
Task = dict[str, Any]
Plant = Callable[[Task], None]
_FOUND = (Verdict.FAULTY, Verdict.UNPROVEN)


def _text(task: Task) -> tuple[str, list[str]]:
    """Return the path of the text, quoted for a shell, and its right lines."""
    evaluator = task["evaluator"]
    return shlex.quote(evaluator["result"][0]["path"]), evaluator["expected"][0]["rules"]["lines"]


def _ask(task: Task, command: str, expected: str) -> None:
    """Replace the first metric by one that compares the output of a command."""
    evaluator = task["evaluator"]
    evaluator["func"][0] = "exact_match"
    evaluator["result"][0] = {"type": "vm_command_line", "command": ["bash", "-c", command]}
    evaluator["expected"][0] = {"type": "rule", "rules": {"expected": expected}}


def bytes_compared(task: Task) -> None:
    """Whether the file ends in a newline decides."""
    path, lines = _text(task)
    _ask(task, f"cat {path}; echo '|'", "".join(f"{line}\n" for line in lines) + "|\n")


def case_ignored(task: Task) -> None:
    path, lines = _text(task)
    _ask(task, f"sed '$a\\' {path} | tr A-Z a-z", "".join(f"{line.lower()}\n" for line in lines))


def spaces_ignored(task: Task) -> None:
    path, lines = _text(task)
    _ask(task, f"tr -d ' \\n' < {path}; echo", "".join(lines).replace(" ", "") + "\n")


def order_ignored(task: Task) -> None:
    path, lines = _text(task)
    expected = "".join(f"{line}\n" for line in sorted(lines, key=str.encode))
    _ask(task, f"sed '$a\\' {path} | LC_ALL=C sort", expected)


def first_half_compared(task: Task) -> None:
    path, lines = _text(task)
    half = len(lines) - len(lines) // 2
    _ask(task, f"head -n {half} {path} | sed '$a\\'", "".join(f"{line}\n" for line in lines[:half]))


def more_lines_accepted(task: Task) -> None:
    path, lines = _text(task)
    wanted = "\n".join(dict.fromkeys(lines))
    count = len(set(lines))
    _ask(task, f"grep -Fxc -f <(printf %s {shlex.quote(wanted)}) <(sort -u {path})", f"{count}\n")


def home_not_checked(task: Task) -> None:
    _drop(task, task["evaluator"]["func"].index("check_folder_kept"))


def one_of_all_enough(task: Task) -> None:
    task["evaluator"]["conj"] = "or"


def only_home_checked(task: Task) -> None:
    while task["evaluator"]["func"][0] != "check_folder_kept":
        _drop(task, 0)


def wrong_value_expected(task: Task) -> None:
    rules = task["evaluator"]["expected"][0]["rules"]
    name = "lines" if "lines" in rules else "expected"
    value = rules[name]
    rules[name] = [*value[:-1], value[-1] + "x"] if isinstance(value, list) else f"{value}x"


def chance_decides(task: Task) -> None:
    evaluator = task["evaluator"]
    evaluator["func"].insert(0, "exact_match")
    command = ["bash", "-c", "echo $((RANDOM % 2))"]
    evaluator["result"].insert(0, {"type": "vm_command_line", "command": command})
    evaluator["expected"].insert(0, {"type": "rule", "rules": {"expected": "0\n"}})
    evaluator["options"].insert(0, {})


def value_not_named(task: Task) -> None:
    """The instruction leaves out what the check compares."""
    task["instruction"] = re.sub(r"/home/user\S*[\w/]|\"[^\"]*\"", "something", task["instruction"])
    task["instruction"] = re.sub(r"\b[\w-]+\.(txt|csv|md|html|sh|conf|desktop)\b", "it", task["instruction"])


def _drop(task: Task, index: int) -> None:
    for name in ("func", "result", "expected", "options"):
        del task["evaluator"][name][index]


_OF_TEXTS: tuple[Plant, ...] = (
    bytes_compared,
    case_ignored,
    spaces_ignored,
    order_ignored,
    first_half_compared,
    more_lines_accepted,
)
_OF_OTHERS: tuple[Plant, ...] = (
    home_not_checked,
    one_of_all_enough,
    only_home_checked,
    wrong_value_expected,
    chance_decides,
    value_not_named,
)
PLANTS = {**dict.fromkeys(_OF_TEXTS, TEXTS), **dict.fromkeys(_OF_OTHERS, OTHERS)}
"""Families that each fault is planted in."""


def write_planted(folder: Path) -> dict[str, str]:
    """Write the broken and the sound tasks; return each one's fault by its name, empty for a sound one."""
    names: dict[str, str] = {}
    for seed, (plant, families) in enumerate(PLANTS.items()):
        for family in families:
            instance = FAMILIES[family].make(1000 + seed, LEVEL)
            task = copy.deepcopy(instance.task)
            plant(task)
            assert task != instance.task, (plant.__name__, family)
            names[_write(folder, plant.__name__, instance, task)] = plant.__name__
    small = [family for family in FAMILIES.values() if family.flavor == "small"]
    for number in range(SOUND):
        instance = small[number % len(small)].make(2000 + number, LEVEL)
        names[_write(folder, "sound", instance, instance.task)] = ""
    return names


def _write(folder: Path, plant: str, instance: Instance, task: Task) -> str:
    path = instance.write(folder / plant)
    path.write_text(json.dumps(task, indent=2) + "\n", encoding="utf-8")
    return f"{plant}/{path.stem}"


def main() -> int:
    """Certify all and print what was found; 1 if fewer than 95 % were, or a sound task was blamed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--at-once", type=int, default=4, help="tasks certified at once")
    parser.add_argument("--out", type=Path, default=Path("out/planted"), help="folder of the record")
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        names = write_planted(Path(folder))
        with local_service("small") as (url, _):
            command = ["osgym", "task", "certify", folder, "--host", url, "--at-once", str(given.at_once)]
            program = str(Path(sys.executable).with_name("osgym"))
            subprocess.run(
                [program, *command[1:], "--golden-runs", "2", "--out", str(given.out)], check=False
            )
    verdicts = {one.task: one for one in read_record(given.out / "certificates.jsonl")}
    found = {name for name in names if name in verdicts and verdicts[name].verdict in _FOUND}
    broken = [name for name, plant in names.items() if plant]
    for plant in dict.fromkeys(names.values()):
        mine = [name for name in names if names[name] == plant]
        print(f"{plant or 'sound'}: {sum(name in found for name in mine)} of {len(mine)} not certified")
        for name in mine:
            if (name in found) != bool(plant):
                print(f"  {name}: {verdicts[name].verdict if name in verdicts else 'no certificate'}")
    share = sum(name in found for name in broken) / len(broken)
    blamed = sum(name in found for name, plant in names.items() if not plant)
    spent = time.monotonic() - began
    print(f"found {share:.1%} of {len(broken)} faults, blamed {blamed} of {SOUND} sound tasks, {spent:.0f} s")
    return 0 if share >= 0.95 and blamed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
