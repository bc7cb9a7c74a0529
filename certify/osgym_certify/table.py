"""A record as a Markdown table, to be kept beside the tasks: a row for each, with its content's digest."""

from __future__ import annotations

from collections.abc import Sequence

from osgym_certify.certificate import Certificate, Verdict
from osgym_certify.page import share
from osgym_certify.summary import figures, verdicts

DIGEST_CHARS = 16
"""Characters of a task's digest that a row has."""
_COLUMNS = (
    "task", "verdict", "mutations", "equivalents", "ways", "flakes", "allowed", "GUI", "desktops", "s",
    "content",
)  # fmt: skip


def certificates_table(certificates: Sequence[Certificate]) -> str:
    """Return the table, with the figures of all in its last row."""
    counts = verdicts(certificates)
    rows = [_row(one.task, one.verdict, [one], one.gui, _code(one.digest)) for one in certificates]
    said = f"{counts[Verdict.CERTIFIED]} of {len(certificates)} certified"
    lines = [_line(_COLUMNS), _line(["---"] * len(_COLUMNS)), *rows, _row("all", said, certificates, "", "")]
    images = ", ".join(_code(image) for image in sorted({one.image for one in certificates}))
    return "\n".join(["# Certificates of tasks", "", *lines, "", f"Golden image: {images or 'none'}.", ""])


def _row(task: str, verdict: str, of: Sequence[Certificate], gui: str, digest: str) -> str:
    total = figures(of)
    shares = (share(one) for one in (total.mutations, total.equivalents, total.ways, total.flakes))
    return _line(
        [task, verdict, *shares, total.allowed or "", gui, total.desktops, round(total.duration_s), digest]
    )


def _code(digest: str) -> str:
    return f"`{digest[:DIGEST_CHARS]}`"


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |"
