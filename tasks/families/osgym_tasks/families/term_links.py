"""term.links: make symbolic links to the newest version of each program, by version number."""

from __future__ import annotations

import random

from osgym_tasks.desk import home, sentence, shell_output, terminal
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, execute, line, upload

_PROGRAMS = {1: 2, 2: 2, 3: 4, 4: 6, 5: 10}
_VERSIONS = {1: 2, 2: 3, 3: 4, 4: 4, 5: 5}
_NAMES = ("atlas", "beacon", "comet", "delta", "ember", "falcon", "glacier", "harbor", "indigo",
          "juniper", "kestrel", "lagoon", "meteor")  # fmt: skip
_WORDINGS = (
    "Make in {links} a symbolic link for each of {names}, with that name, to the folder of its newest "
    "version in {root}. The newest is the one with the highest version number. Links of these names that "
    "are there already are to be replaced; nothing else may change.",
    "For each of {names}, {links} should have a symbolic link of that name that leads to the folder in "
    "{root} with its highest version number. Replace older links of these names, and leave everything else "
    "as it is.",
    "Please update the symbolic links in {links}: {names} are each to point at the folder in {root} that "
    "has the highest version number of that program. Make those links that are missing. Change nothing "
    "else.",
    "After the update, people still start old versions. Please set the symbolic links in {links} for "
    "{names}, each named like the program, to the folder with its highest version number in {root}. "
    "Replace older links of these names, and change nothing else.",
    "Our scripts go by {links}. For each of {names}, they expect a symbolic link of that name there, to "
    "the program's folder in {root} whose version number is highest. Could you put that right? Anything "
    "else stays as it is.",
    "I have unpacked new versions into {root} and now need links to the newest ones: in {links}, a "
    "symbolic link for each of {names}, with that name. Newest means the highest version number. Old links "
    "of these names may go, but nothing else may change.",
)
_TRANSLATIONS = {
    "de": (
        "Nach dem Update starten noch immer alte Versionen. Setze bitte in {links} für {names} je einen "
        "symbolischen Link mit dem Namen des Programms auf dessen Ordner mit der höchsten Versionsnummer "
        "in {root}. Ersetze ältere Links dieser Namen, und ändere sonst nichts.",
    ),
    "es": (
        "Tras la actualización se siguen abriendo versiones viejas. Crea en {links} un enlace simbólico "
        "para cada uno de {names}, con ese nombre, a su carpeta con el número de versión más alto en {root}"
        ". Sustituye los enlaces antiguos con esos nombres y no cambies nada más.",
    ),
    "zh": (
        "更新之后启动的仍是旧版本。请在 {links} 中为 {names} 各建一个与程序同名的符号链接，指向 {root} 中版"
        "本号最高的那个文件夹。替换这些名称的旧链接，其他一切不变。",
    ),
}


def _draft(dice: random.Random, level: int) -> Draft:
    root, links = (
        home(dice.choice(("apps", "programs", "software"))),
        home(dice.choice(("current", "links", "active"))),
    )
    *names, beside = dice.sample(_NAMES, _PROGRAMS[level] + 1)
    versions = {name: _versions(dice, _VERSIONS[level]) for name in (*names, beside)}
    newest = {name: f"{root}/{name}-{all_of[-1]}" for name, all_of in versions.items()}
    by_letter = {name: f"{root}/{name}-{max(all_of)}" for name, all_of in versions.items()}
    files = {
        f"{root}/{name}-{one}/about.txt": f"{name} {one}\n" for name in versions for one in versions[name]
    }
    stale = {name: f"{root}/{name}-{versions[name][0]}" for name in (*names[::2], beside)}
    wanted = {**stale, **{name: newest[name] for name in names}}
    files[f"{links}/README"] = "Links to what is in use.\n"
    listed = sorted({*wanted, "README"})
    list_files = f"find {root} {links} -type f | LC_ALL=C sort"
    there = f'cd {links} && for f in *; do [ -L "$f" ] && echo "$f $(readlink -f "$f")"; done'
    near = {
        "by letters": _ways(links, {name: by_letter[name] for name in names}),
        "copied": [line(f"rm -f {links}/{names[0]}"),
                   *(line(f"cp -r {newest[name]} {links}/{name}") for name in names), DONE],
        "one forgotten": _ways(links, {name: newest[name] for name in names[1:]}),
    }  # fmt: skip
    return Draft(
        _WORDINGS,
        {
            "links": links,
            "root": root,
            "names": sentence(names),
        },
        [
            upload(files),
            *(execute("ln", "-s", path, f"{links}/{name}") for name, path in stale.items()),
            *terminal(),
        ],
        every(
            shell_output(there, "".join(f"{name} {wanted[name]}\n" for name in sorted(wanted))),
            shell_output(f"ls -A {links} | LC_ALL=C sort", "".join(f"{name}\n" for name in listed)),
            shell_output(
                f'{list_files} | while read -r f; do echo "$f $(cat "$f")"; done',
                "".join(f"{path} {files[path]}" for path in sorted(files)),
            ),
        ),
        Ways(_ways(links, {name: newest[name] for name in names}), near),
        changes=[f"{links}/{name}" for name in names],
        translations=_TRANSLATIONS,
        translated={language: {"names": sentence(names, language)} for language in _TRANSLATIONS},
    )


def _versions(dice: random.Random, count: int) -> list[str]:
    """Draw versions in ascending order, which is not the alphabetical one, since 10 comes before 9 there."""
    major = dice.randrange(1, 4)
    below = sorted(dice.sample(range(1, 9), max(count - 2, 0)))
    return [f"{major}.{minor}" for minor in (*below, 9, dice.randrange(10, 15))][-count:]


def _ways(links: str, targets: dict[str, str]) -> Steps:
    return [
        *(line(f"ln -sfn {path} {links}/{name}") for name, path in targets.items()),
        line(f"ls -l {links}"),
        DONE,
    ]


FAMILY = Family("term.links", 4, _draft, ("xfce4-terminal",))
