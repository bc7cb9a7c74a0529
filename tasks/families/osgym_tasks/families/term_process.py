"""term.process: end the right ones of processes that differ in their arguments only."""

from __future__ import annotations

import random

from osgym_tasks.desk import home, sentence, shell_output, terminal
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, Kept, every, line, upload

_COUNT = {1: 2, 2: 4, 3: 6, 4: 8, 5: 10}
_NAMES = ("worker", "sender", "poller", "mirror", "indexer", "watcher")
_FOLDERS = ("jobs", "service", "tools", "bin", "queue")
_QUEUES = ("mail", "print", "video", "backup", "orders", "photos", "news", "sync", "bills", "stock")
_REGIONS = ("north", "south", "east", "west")
_SOURCE = '"""Waits until it is ended."""\n\nimport signal\n\nwhile True:\n    signal.pause()\n'
_WORDINGS = (
    "Several processes of {program} are running. End {which}; all others must go on running, and the "
    "program file stays as it is.",
    "Stop {which} among those that run {program}. Leave every other process of it running"
    " and do not change the file.",
    "Of the processes that run {program}, please kill {which}. The others keep running; the program stays "
    "unchanged.",
    "Among the processes of {program}, terminate {which}, and no other. Do not touch the program file.",
    "{program} runs several times. Only {which} should be ended; the rest goes on, and the file is left "
    "alone.",
    "I need this ended, of all that runs {program}: {which}. All its other processes have to stay alive, "
    "and its file unchanged.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    program = home(f"{dice.choice(_FOLDERS)}/{dice.choice(_NAMES)}.py")
    first, second, *more = dice.sample(_QUEUES, 10)
    if level <= 2:
        arguments = [f"--queue {name}" for name in (first, second, *more)]
        wanted = arguments[:1]
    elif level == 3:
        twins = (first, f"{first}2", f"{first}-old", second, *more)
        arguments = [f"--queue {name}" for name in twins]
        wanted = arguments[:1]
    else:
        queues = (first, second, f"{first}2", f"{second}2")
        places = dice.sample(_REGIONS, 3)
        arguments = [f"--queue {name} --region {place}" for name in queues for place in places]
        wanted = [arguments[0]] if level == 4 else [arguments[0], arguments[4]]
        arguments = [*wanted, arguments[1], arguments[6], *arguments[2:4], *arguments[7:]][: _COUNT[level]]
    arguments = dice.sample(list(dict.fromkeys(arguments[: _COUNT[level]])), _COUNT[level])
    left = sorted(f"python3 {program} {text}\n" for text in arguments if text not in wanted)
    start = "; ".join(f"python3 {program} {text} &" for text in arguments).replace("&;", "&")
    pattern = program.replace(".", "[.]")
    near = {
        "all ended": _ways([f"pkill -f {program}"]),
        "a twin": _ways([_kill(next(text for text in arguments if text not in wanted))]),
    }
    if level >= 3:
        near["twins too"] = _ways([f"pkill -f -- '{text.partition(' --region')[0]}'" for text in wanted])
    if len(wanted) > 1:
        near["one forgotten"] = _ways([_kill(wanted[0])])
    others = [text for text in arguments if text not in wanted]
    again = "".join(f"setsid python3 {program} {text} >/dev/null 2>&1 & " for text in others)
    near["all ended, the others started again"] = _ways([f"pkill -f {program}; {again}"])
    pids = f"pgrep -af '^python3 {pattern} ' | grep -vE -- '({'|'.join(wanted)})$' | LC_ALL=C sort"
    which = sentence(f'the process with the arguments "{text}"' for text in wanted)
    return Draft(
        _WORDINGS,
        {"program": program, "which": which},
        [
            upload({program: _SOURCE}),
            {"type": "launch", "parameters": {"command": ["bash", "-c", f"{start} wait"]}},
            {
                "type": "execute",
                "parameters": {
                    "command": ["bash", "-c", f"[ $(pgrep -cf '^python3 {pattern} ') -eq {len(arguments)} ]"],
                    "until": {"returncode": 0},
                },
            },
            {"type": "execute", "parameters": {"command": ["bash", "-c", pids], "stdout": "others"}},
            *terminal(),
        ],
        every(
            shell_output(f"ps -eo args= | grep '^python3 {pattern} ' | LC_ALL=C sort", "".join(left)),
            ("literal_match", {"type": "vm_command_line", "command": ["bash", "-c", pids]}, Kept("others")),
        ),
        Ways(_ways([_kill(text) for text in wanted]), near),
        changes=(),
    )


def _kill(arguments: str) -> str:
    return f"pkill -f -- '{arguments}$'"


def _ways(commands: list[str]) -> Steps:
    return [*map(line, commands), line("ps -eo args | grep -c queue"), DONE]


FAMILY = Family("term.process", 3, _draft, ("xfce4-terminal",))
