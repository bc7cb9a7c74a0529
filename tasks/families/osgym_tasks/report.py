"""Report page of a record: proofs by family and level, durations, rewards of chance, failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from osgym_tasks.baseline import earned
from osgym_tasks.difficulty import difficulties, disorder
from osgym_tasks.family import LEVELS
from osgym_tasks.pages import cell, page, table, text, tiles
from osgym_tasks.record import Outcome

MAX_NAMED = 200
"""Number of failures that are named one by one."""


def report_page(outcomes: Sequence[Outcome]) -> str:
    """Return the page of these outcomes, which are of one image."""
    proofs = [one for one in outcomes if not one.is_baseline]
    images = sorted({one.image for one in outcomes})
    said = ", ".join(f"<code>{text(image[:12])}</code>" for image in images) or "no image"
    parts = [
        "<h1>Proof of generated tasks</h1>",
        f'<p class="faint">Golden image {said}. An instance is proved when the oracle earns 1.0 twice, '
        "nothing 0.0 and every near miss 0.0.</p>",
        _figures(proofs),
        "<h2>Families and levels</h2>",
        _families(proofs),
        _cost(outcomes),
        _chance(outcomes),
        _failures(proofs),
    ]
    return page("Proof of generated tasks", "\n".join(part for part in parts if part))


def failure_kind(outcome: Outcome) -> str:
    """Return the group of a failure: its cause, or the wrong reward."""
    if outcome.reward is None:
        return outcome.failure.partition(":")[0] or "no reward"
    kind = outcome.way.partition(":")[0].rstrip(" 0123456789")
    return f"{kind} earned {outcome.reward:g}, not {outcome.wanted:g}"


def _figures(proofs: Sequence[Outcome]) -> str:
    instances = _by_instance(proofs)
    return tiles(
        {
            "families": len({one.family for one in proofs}),
            "instances": len(instances),
            "proved": sum(_is_proved(of) for of in instances.values()),
            "episodes": len(proofs),
            "wrong or without reward": sum(not one.is_right for one in proofs),
            "hours of desktops": f"{sum(one.duration_s for one in proofs) / 3600:.2f}",
        }
    )


def _families(proofs: Sequence[Outcome]) -> str:
    rows = []
    for family in sorted({one.family for one in proofs}):
        mine = [one for one in proofs if one.family == family]
        oracles = [one for one in mine if one.is_oracle]
        row = [cell(family)]
        for level in LEVELS:
            instances = _by_instance([one for one in mine if one.level == level])
            proved = sum(_is_proved(of) for of in instances.values())
            kind = "none" if not instances else "good" if proved == len(instances) else "bad"
            row.append(cell(f"{proved}/{len(instances)}" if instances else "–", kind))
        wrong = sum(not one.is_right for one in mine)
        row += [cell(len(mine)), cell(wrong, "bad" if wrong else "none")]
        row += [cell(f"{median(values):.1f}" if values else "–") for values in (
            [one.steps for one in oracles], [one.duration_s for one in oracles],
            [one.setup_s for one in mine if one.setup_s is not None],
        )]  # fmt: skip
        rows.append(row)
    head = ["family", *(f"level {level}" for level in LEVELS), "episodes", "wrong"]
    return table([*head, "oracle's steps", "oracle's seconds", "set-up seconds"], rows)


def _cost(outcomes: Sequence[Outcome]) -> str:
    measured = difficulties(outcomes)
    if not any(row.effort is not None for row in measured):
        return ""
    falls = {(family, high) for family, _, high in disorder(measured)}
    by_family: dict[str, dict[int, float]] = {}
    for row in measured:
        if row.effort is not None:
            by_family.setdefault(row.family, {})[row.level] = row.effort
    rows = [
        [
            cell(family),
            *(
                cell(f"{efforts[level]:.0f}", "bad" if (family, level) in falls else "") if level in efforts
                else cell("–", "none")
                for level in LEVELS
            ),
        ]
        for family, efforts in by_family.items()
    ]  # fmt: skip
    about = (
        "Actions and typed characters of the oracle, mean; a level that costs less than the last is marked."
    )
    head = ["family", *(f"level {level}" for level in LEVELS)]
    return f'<h2>What levels cost</h2><p class="faint">{about}</p>{table(head, rows)}'


def _chance(outcomes: Sequence[Outcome]) -> str:
    rows = [
        [cell(one.family), cell(one.policy, "text"), cell(one.episodes),
         cell(f"{one.mean:.3f}", "bad" if one.is_suspicious else "good"),
         cell(f"{one.low:.3f} to {one.high:.3f}")]
        for one in earned(outcomes)
    ]  # fmt: skip
    head = ["family", "policy", "episodes", "mean reward", "95 % interval"]
    return f"<h2>What chance earns</h2>{table(head, rows)}" if rows else ""


def _failures(proofs: Sequence[Outcome]) -> str:
    wrong = [one for one in proofs if not one.is_right]
    if not wrong:
        return "<h2>Failures</h2><p>None.</p>"
    counted = Counter((failure_kind(one), one.family) for one in wrong)
    causes = [
        [cell(kind, "text"), cell(family, "text"), cell(count)]
        for (kind, family), count in counted.most_common()
    ]
    named = [
        [cell(one.instance, "text"), cell(one.way, "text"),
         cell("–" if one.reward is None else f"{one.reward:g}"), cell(one.failure, "text")]
        for one in wrong[:MAX_NAMED]
    ]  # fmt: skip
    more = f"<p>And {len(wrong) - MAX_NAMED} more.</p>" if len(wrong) > MAX_NAMED else ""
    return (
        f"<h2>Failures by cause</h2>{table(['cause', 'family', 'episodes'], causes)}"
        f"<h2>Each failure</h2>{table(['instance', 'way', 'reward', 'why'], named)}{more}"
    )


def _by_instance(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = {}
    for one in outcomes:
        found.setdefault(one.instance, []).append(one)
    return found


def _is_proved(outcomes: Sequence[Outcome]) -> bool:
    return all(one.is_right for one in outcomes)
