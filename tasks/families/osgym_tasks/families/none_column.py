"""none.column: as calc.aggregate, but the table lacks a column, so only failing is right.

Another column of numbers is there, which must not be taken in its place.
"""

from __future__ import annotations

import random
from dataclasses import replace

from osgym_tasks.calc import APPS, SAVE, draw_table, opened, pause, workbook
from osgym_tasks.families.calc_aggregate import ROWS, WORDINGS, drawn, enter, named
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, FAIL, infeasible, key


def _draft(dice: random.Random, level: int) -> Draft:
    whole = draw_table(dice, ROWS[level])
    jobs = drawn(dice, level, whole)
    gone = jobs[-1].heading
    table = whole.without(gone)
    like = dice.choice(table.numbers)
    others = [replace(job, table=table) for job in jobs if job.heading != gone]
    taken = [replace(job, table=table, heading=like if job.heading == gone else job.heading) for job in jobs]
    similar = [*enter([(job.cell, job.formula()) for job in taken]), *SAVE]
    near = {
        "another column": [*similar, DONE],
        "another column, then given up": [*similar, FAIL],
    }
    if others:
        near["the others only"] = [*enter([(job.cell, job.formula()) for job in others]), *SAVE, DONE]
    else:
        near["done without a change"] = [*_looked_for([gone]), DONE]
    return Draft(
        WORDINGS,
        named(jobs, level),
        opened(table.path, workbook({"Data": table.grid})),
        infeasible(),
        Ways([*_looked_for([job.heading for job in jobs]), FAIL], near),
        changes=(),
        shown=("path",),
    )


def _looked_for(headings: list[str]) -> Steps:
    """Return steps that search the sheet for each heading."""
    return [[key("ctrl", "f"), pause(), {"op": "type", "text": one, "press_enter": True}, pause(), key("esc")]
            for one in headings]  # fmt: skip


FAMILY = Family("none.column", 1, _draft, APPS, "full")
