"""Web applications inside the desktop: how they are served, opened and checked.

The application runs as `www-data` on loopback and tells the evaluator what changed, by a key of the task's
own. At the end of the set-up nobody at the desktop can become root any more. It accepts a form only from a
page in a browser; a program in a terminal that imitates one, with cookie, token and headers, is not
prevented.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from json import dumps
from typing import Any

from osgym_tasks.family import Steps
from osgym_tasks.pieces import NO_ROOT, every, execute, key, launch, output_check, upload
from osgym_tasks.targets import click
from osgym_tasks.webapps.framework import PORT, Tables, difference

URL = f"http://localhost:{PORT}"
APPS = ("chromium",)
_BROWSER_S = 90
"""Deadline for the first window on a busy machine; it takes two seconds on an idle one."""
_ROOT = "/srv/site"
_BROUGHT = "/tmp/site"  # noqa: S108 - alone in its desktop
_SERVE = f"""set -e
mv {_BROUGHT} {_ROOT}
chown -R www-data: {_ROOT}
chmod 0700 {_ROOT}
cd {_ROOT}
for app in "$@"; do runuser -u www-data -- python3 -m osgym_tasks.webapps.$app {_ROOT}/$app.json; done
{NO_ROOT}"""


@cache
def _sources(app: str) -> Mapping[str, str]:
    folder = files("osgym_tasks.webapps")
    names = ("__init__.py", "framework.py", f"{app}.py")
    found = {
        f"osgym_tasks/webapps/{name}": folder.joinpath(name).read_text(encoding="utf-8") for name in names
    }
    return {"osgym_tasks/__init__.py": "", **found}


class Served:
    """An application with its rows, in one task.

    Args:
        app: Module of `osgym_tasks.webapps`.
        title: Title of the site.
        tables: Initial rows.
        port: Port on loopback, different for each application of a task.
    """

    def __init__(self, dice: random.Random, app: str, title: str, tables: Tables, port: int = PORT) -> None:
        self._key = f"{dice.getrandbits(128):032x}"
        self._tables, self._port = tables, port
        self.app, self.title, self.url = app, title, f"http://localhost:{port}"

    def files(self) -> dict[str, str]:
        """Return the sources and the initial rows, by path below the folder of the applications."""
        seed = {"title": self.title, "key": self._key, "port": self._port, "tables": self._tables}
        return {**_sources(self.app), f"{self.app}.json": dumps(seed)}

    def config(self, path: str = "/", *, window: str = "") -> list[dict[str, Any]]:
        """Serve it, and open the browser at a path.

        Args:
            window: Beginning of the window's title, if it is not the site's.
        """
        return [*serving(self), *browser(f"{self.url}{path}", window or self.title)]

    def evaluator(self, after: Tables) -> dict[str, Any]:
        """Check that the rows changed into these, given by table; tables that are left out are unchanged."""
        return every(self.check(after))

    def check(self, after: Tables) -> tuple[str, dict[str, Any], dict[str, Any]]:
        """Return the same check, for `every`."""
        argv = (
            "/usr/bin/curl",
            "-q",
            "-s",
            "--noproxy",
            "*",
            "-H",
            f"X-Key: {self._key}",
            f"{self.url}/state",
        )
        return output_check(argv, difference(self._tables, {**self._tables, **after}))


def serving(*applications: Served) -> list[dict[str, Any]]:
    """Serve applications, each on its own port; after that nobody at the desktop can become root."""
    there = {name: text for one in applications for name, text in one.files().items()}
    return [
        upload({f"{_BROUGHT}/{name}": text for name, text in there.items()}),
        execute("sudo", "-n", "sh", "-c", _SERVE, "serve", *(one.app for one in applications)),
    ]


def browser(url: str, window: str, *tabs: str) -> list[dict[str, Any]]:
    """Open the browser with its page in the accessibility tree, and wait for the window's title.

    Args:
        tabs: Addresses of further tabs behind the first one.
    """
    start, wait = launch(
        window, "google-chrome", "--no-first-run", "--force-renderer-accessibility", url, *tabs
    )
    wait["parameters"]["max_wait_time"] = _BROWSER_S
    return [start, wait]


def go(path: str, site: str = URL) -> list[dict[str, Any]]:
    """Return a step that goes to a page by the address bar, with a second for loading.

    A page gets the shortcut before the browser does: text that follows at once may go to a busy page. Delete
    removes the rest of a longer address that the browser proposes.
    """
    bar, shown = ({"op": "wait", "duration_ms": duration_ms} for duration_ms in (800, 1000))
    return [key("ctrl", "l"), bar, typed(f"{site}{path}"), key("delete"), key("enter"), shown]


def visit(path: str, heading: str, site: str = URL) -> Steps:
    """Go to a page, wait until its heading appears, and click that: Tab goes to the first field below it.

    A fixed wait is not enough on a busy machine, where keys go to the page before.
    """
    return [go(path, site), [click("heading", heading)]]


def typed(text: str) -> dict[str, Any]:
    """Type into the focused element."""
    return {"op": "type", "text": text}


def pick(options: Sequence[Any], old: Any, new: Any) -> list[dict[str, Any]]:
    """Choose from the focused list by arrow keys; letters that come slowly would choose wrongly."""
    steps = options.index(new) - options.index(old)
    arrow = key("down" if steps > 0 else "up")
    return [{**arrow, "repeat": abs(steps)}] if steps else []


def posted(path: str, fields: Mapping[str, str]) -> Steps:
    """Return steps that send a form past the browser, by curl in a terminal."""
    said = " ".join(f"--data-urlencode '{name}={value}'" for name, value in fields.items())
    shell = [key("ctrl", "alt", "t"), {"op": "wait", "duration_ms": 1500}]
    return [shell, [typed(f"curl -s {said} {URL}{path}"), key("enter")]]


def replaced(
    rows: Sequence[Mapping[str, Any]], changes: Mapping[int, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the rows with new values at these places."""
    return [{**row, **changes.get(at, {})} for at, row in enumerate(rows)]


def question(
    name: str, label: str, kind: str, options: Sequence[str] = (), value: str = ""
) -> dict[str, Any]:
    """Return a row of the form's questions."""
    return {"name": name, "label": label, "kind": kind, "options": "\n".join(options), "value": value}


def answers(questions: Sequence[Mapping[str, Any]], wanted: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the rows that the form leaves when it was sent once, by names of questions."""
    rows = []
    for row in questions:
        value = wanted.get(row["name"], row["value"])
        if row["kind"] == "checkbox":
            value = "\n".join(sorted(value.splitlines()))
        rows.append({"number": 1, "name": row["name"], "value": value})
    return rows


def filled(questions: Sequence[Mapping[str, Any]], wanted: Mapping[str, str]) -> Steps:
    """Return steps that fill in the form from the first field to the last by keyboard, and send it."""
    steps: Steps = [*visit("/form", "Form"), []]
    for row in questions:
        actions = [key("tab"), *_set(row, wanted.get(row["name"], row["value"]))]
        if len(steps[-1]) + len(actions) > 60:
            steps.append([])
        steps[-1].extend(actions)
    return [*steps, [key("tab"), key("enter")]]


def _set(row: Mapping[str, Any], value: str) -> list[dict[str, Any]]:
    """Give the focused field a value; the focus is on its last part afterwards."""
    options, old = row["options"].splitlines(), row["value"]
    match row["kind"]:
        case "checkbox":
            flips = [(option in value.splitlines()) != (option in old.splitlines()) for option in options]
            actions = [action for flip in flips for action in (key("tab"), *([key("space")] * flip))]
            return actions[1:]
        case "date" | "time" as kind:  # three parts and a button
            new = _us_date(value) if kind == "date" else _us_time(value)
            return [typed(new), key("tab")] if value != old else [key("tab")] * 3
        case _ if value == old:
            return []
        case "select":
            return pick(options, old, value)
        case "radio":
            if not old:
                return [key("space"), *([key("down")] * options.index(value))]
            moves = options.index(value) - options.index(old)
            return [key("down" if moves > 0 else "up")] * abs(moves)
        case "range":
            low, _, step = map(int, options)
            return [key("home"), *([key("right")] * ((int(value) - low) // step))]
        case "area":
            return [key("ctrl", "a"), typed(value)]
        case _:
            return [typed(value)]


def _us_date(iso: str) -> str:
    return f"{iso[5:7]}{iso[8:]}{iso[:4]}"


def _us_time(clock: str) -> str:
    hour, minute = int(clock[:2]), clock[3:]
    return f"{hour % 12 or 12:02}{minute}{'A' if hour < 12 else 'P'}"
