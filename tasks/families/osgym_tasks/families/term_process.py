"""term.process: end the right ones of processes that differ in their arguments only."""

from __future__ import annotations

import random

from osgym_tasks.desk import home, sentence, shell_output, terminal
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, Kept, every, line, upload

_COUNT = {1: 2, 2: 4, 3: 8, 4: 11, 5: 16}
_ENDED = {1: 1, 2: 1, 3: 2, 4: 4, 5: 7}
_NAMES = ("worker", "sender", "poller", "mirror", "indexer", "watcher")
_FOLDERS = ("jobs", "service", "tools", "bin", "queue")
_QUEUES = ("mail", "print", "video", "backup", "orders", "photos", "news", "sync", "bills", "stock")
_REGIONS = ("north", "south", "east", "west")
_SOURCE = '"""Waits until it is ended."""\n\nimport signal\n\nwhile True:\n    signal.pause()\n'
_WORDINGS = (
    "Several processes of {program} are running. End {which}; all others must go on running, and the "
    "program file stays as it is.",
    "Stop {which} among those that run {program}. Leave every other process of it running and do not "
    "change the file.",
    "Of the processes that run {program}, please kill {which}. The others keep running; the program stays "
    "unchanged.",
    "The machine is slow because too much of {program} is running. I no longer need {which}, so please end "
    "that. The rest has work to do and must not be interrupted, and the program file stays as it is.",
    "I started a few things by mistake. Could you stop {which}? They all run {program}, and the others of "
    "it must stay alive. Don't touch the program itself.",
    "Before the maintenance starts, {which} has to be stopped, nothing else that runs {program}. Please do "
    "not restart the others either, and leave the file alone.",
)
_TRANSLATIONS = {
    "de": (
        "Der Rechner ist langsam, weil {program} zu oft läuft. Beende bitte {which}. Alle anderen Prozesse "
        "dieses Programms müssen weiterlaufen, ohne Neustart, und die Programmdatei bleibt unverändert.",
    ),
    "es": (
        "El equipo va lento porque {program} se está ejecutando demasiadas veces. Termina {which}. Los "
        "demás procesos de ese programa deben seguir en marcha, sin reiniciarlos, y el archivo no debe "
        "cambiar.",
    ),
    "zh": (
        "{program} 运行得太多，机器变慢了。请结束{which}。该程序的其他进程必须继续运行，不能重启，程序文件"
        "也不要改动。",
    ),
}
_PROCESS = {
    "en": 'the process with the arguments "{}"',
    "de": 'den Prozess mit den Argumenten "{}"',
    "es": 'el proceso con los argumentos "{}"',
    "zh": '参数为 "{}" 的进程',
}


def _draft(dice: random.Random, level: int) -> Draft:
    program = home(f"{dice.choice(_FOLDERS)}/{dice.choice(_NAMES)}.py")
    queues = dice.sample(_QUEUES, 10)
    if level <= 2:
        arguments = [f"--queue {name}" for name in queues]
        wanted = arguments[: _ENDED[level]]
    elif level == 3:
        wanted = [f"--queue {name}" for name in queues[: _ENDED[level]]]
        twins = [f"{one}{more}" for one in wanted for more in ("2", "-old")]
        arguments = [*wanted, *twins, *(f"--queue {name}" for name in queues[_ENDED[level] :])]
    else:
        places = dice.sample(_REGIONS, 3)
        pairs = [(name, place) for name in queues[:4] for place in places]
        wanted = [f"--queue {name} --region {place}" for name, place in dice.sample(pairs, _ENDED[level])]
        beside = [f"--queue {name}{more} --region {place}" for more in ("", "2") for name, place in pairs]
        arguments = [*wanted, *(one for one in beside if one not in wanted)]
    arguments = dice.sample(arguments[: _COUNT[level]], _COUNT[level])
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
        near["one forgotten"] = _ways([_kill(text) for text in wanted[:-1]])
    others = [text for text in arguments if text not in wanted]
    again = "".join(f"setsid python3 {program} {text} >/dev/null 2>&1 & " for text in others)
    near["all ended, the others started again"] = _ways([f"pkill -f {program}; {again}"])
    pids = f"pgrep -af '^python3 {pattern} ' | grep -vE -- '({'|'.join(wanted)})$' | LC_ALL=C sort"
    which = {
        language: sentence((process.format(text) for text in wanted), language)
        for language, process in _PROCESS.items()
    }
    return Draft(
        _WORDINGS,
        {"program": program, "which": which["en"]},
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
        translations=_TRANSLATIONS,
        translated={language: {"which": which[language]} for language in _TRANSLATIONS},
    )


def _kill(arguments: str) -> str:
    return f"pkill -f -- '{arguments}$'"


def _ways(commands: list[str]) -> Steps:
    return [*map(line, commands), line("ps -eo args | grep -c queue"), DONE]


FAMILY = Family("term.process", 4, _draft, ("xfce4-terminal",))
