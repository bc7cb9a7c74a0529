"""The page of a record: verdicts, causes, a row for each task, every end state with a wrong reward."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from osgym_certify.certificate import Certificate, Kind, Trial, Verdict
from osgym_certify.summary import Figures, causes, figures, gui_free, verdicts
from osgym_cli.evals.page import CSS, HEAD

_CHIPS = {
    Verdict.CERTIFIED: "passed",
    Verdict.FAULTY: "failed",
    Verdict.UNPROVEN: "missed",
    Verdict.FAILED: "missed",
}
_FOOT = (
    "<footer>Mutations are wrong ends, made from the golden one by machine; each must earn less than 1. "
    "Equivalents are as good as the golden end and must earn 1. A flake is a golden end that did not earn 1. "
    "“GUI free”: the golden files alone, written by a shell, earn 1.</footer></main></body></html>"
)


def certificates_page(certificates: Sequence[Certificate]) -> str:
    """Return the page as HTML that fetches nothing."""
    images = ", ".join(sorted({one.image[:12] for one in certificates})) or "none"
    parts = [
        HEAD.format(title="Certificates of tasks", css=CSS),
        f"<header><h1>Certificates of tasks</h1><p>Golden image {_text(images)}</p></header>",
        _cards(certificates),
        _causes(certificates),
        _table(certificates),
        *(_faults(one) for one in certificates if one.verdict is not Verdict.CERTIFIED),
        _FOOT,
    ]
    return "\n".join(part for part in parts if part)


def share(pair: tuple[int, int]) -> str:
    """Return `held / tried`; a dash if nothing was tried."""
    return f"{pair[0]} / {pair[1]}" if pair[1] else "–"


def _cards(certificates: Sequence[Certificate]) -> str:
    total, counts = figures(certificates), verdicts(certificates)
    low, high = total.flake_rate
    flakes = f"{total.flakes[0]} / {total.flakes[1]}"
    cards = [
        ("certified", f"{counts[Verdict.CERTIFIED]} / {len(certificates)}", "tasks"),
        ("faulty", counts[Verdict.FAULTY], "a wrong reward was found"),
        ("unproven", counts[Verdict.UNPROVEN], "no oracle that earns 1"),
        ("mutations", share(total.mutations), "earned less than 1"),
        ("equivalents", share(total.equivalents), "earned 1"),
        ("flakes", flakes, f"{low:.1%} to {high:.1%}" if total.flakes[1] else ""),
        ("GUI free", len(gui_free(certificates)), "a shell alone earns 1"),
        ("time", f"{total.duration_s / 60:.1f} min", f"{total.desktops} desktops"),
    ]
    made = (
        f'<div class="card"><span>{_text(name)}</span><b>{_text(value)}</b><small>{_text(note)}</small></div>'
        for name, value, note in cards
    )
    return f'<div class="cards">{"".join(made)}</div>'


def _causes(certificates: Sequence[Certificate]) -> str:
    rows = [
        f'<tr><td>{_text(cause)}</td><td class="n">{len(tasks)}</td>'
        f"<td><small>{_text(', '.join(tasks))}</small></td></tr>"
        for cause, tasks in causes(certificates)
    ]
    if not rows:
        return ""
    head = '<tr><th>cause</th><th class="n">tasks</th><th></th></tr>'
    return f"<h2>Causes</h2><table>{head}{''.join(rows)}</table>"


def _table(certificates: Sequence[Certificate]) -> str:
    names = ("mutations held", "equivalents held", "ways held", "flakes", "allowed", "desktops", "seconds")
    head = "".join(f'<th class="n">{name}</th>' for name in names)
    rows = "".join(_row(one, figures([one])) for one in certificates)
    return f"<h2>Tasks</h2><table><tr><th>task</th><th></th><th>GUI</th>{head}</tr>{rows}</table>"


def _row(one: Certificate, of: Figures) -> str:
    cells: Iterable[object] = (
        share(of.mutations), share(of.equivalents), share(of.ways), share(of.flakes), of.allowed or "",
        of.desktops, f"{of.duration_s:.0f}",
    )  # fmt: skip
    figured = "".join(f'<td class="n">{_text(cell)}</td>' for cell in cells)
    chip = f'<span class="chip {_CHIPS[one.verdict]}">{one.verdict}</span>'
    name = f"{_text(one.task)}<small>{_text(one.instruction[:240])}</small>"
    return f"<tr><td>{name}</td><td>{chip}</td><td>{one.gui}</td>{figured}</tr>"


def _faults(one: Certificate) -> str:
    wrong = [trial for trial in one.trials if trial.is_wrong]
    unscored = [trial for trial in one.trials if trial.earned is None]
    lines = [f"<li><span></span><div><p>{_trial(trial)}</p></div></li>" for trial in (*wrong, *unscored)]
    lines += [
        f"<li><span></span><div><p><b>{_text(finding.code)}</b> ({_text(finding.severity)}): "
        f"{_text(finding.message)}</p></div></li>"
        for finding in one.findings
    ]
    failure = f'<p class="wrong">{_text(one.failure)}</p>' if one.failure else ""
    if one.verdict is Verdict.UNPROVEN and not one.of(Kind.GOLDEN):
        failure += "<p class='wrong'>No oracle beside the task: only the untouched desktop was scored.</p>"
    return (
        f"<article><h3>{_text(one.task)} <small>{one.verdict}</small></h3>"
        f'<p class="task">{_text(one.instruction)}</p>{failure}<ol>{"".join(lines)}</ol></article>'
    )


def _trial(trial: Trial) -> str:
    earned = "no reward" if trial.earned is None else f"{trial.earned:g}"
    must = "" if trial.must is None else f", not {trial.must:g}"
    about = f" <code>{_text(trial.about)}</code>" if trial.about else ""
    return f"{trial.kind}: <b>{_text(trial.end)}</b>{about} earned {earned}{must}. {_text(trial.note)}"


def _text(value: object) -> str:
    return html.escape(str(value), quote=True)
