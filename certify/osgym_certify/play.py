"""Certification of one task on desktops: its ways, then the end states that are made from its golden end."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from osgym_certify.certificate import Certificate, Gui, Kind, Trial
from osgym_certify.desk import Desk, DeskError
from osgym_certify.ends.base import MAX_FILE_BYTES, Edit, End, GoldenFile, Must, Remove, Write
from osgym_certify.home import Listing, changes, is_hidden, visible
from osgym_certify.plan import GoldenEnd, ends_of, kept_paths, losses, worth_a_probe
from osgym_certify.sense import findings
from osgym_certify.subject import Subject
from osgym_host.tasks.shipped import Step, Steps
from osgym_protocol.targets import TargetMissing
from osgym_protocol.version import __version__
from osgym_sdk import AsyncClient, Evaluation, OSGymError

log = logging.getLogger(__name__)

CONTROL_EVERY = 10
"""Number of end states after which the golden end is scored again, to see that the desktop is still good."""
MAX_DESKTOPS = 8
"""Largest number of desktops for the end states of one task: a broken one is replaced."""
MAX_SAVED_AGAIN = 2
OFFICE_ENDINGS = (".docx", ".odt", ".xlsx", ".ods", ".pptx", ".odp")
NOTHING: Steps = (Step(({"op": "done"},)),)


@dataclass(frozen=True, slots=True)
class Settings:
    """Parameters of a certification.

    Attributes:
        golden_runs: Number of desktops on which the golden end must earn 1.
        max_ends: Largest number of end states of one task.
    """

    image: str
    seed: int = 0
    golden_runs: int = 3
    max_ends: int = 150


@dataclass
class Certification:
    """One certification, as far as it has come."""

    client: AsyncClient
    subject: Subject
    settings: Settings
    on_trial: Callable[[Trial], None] = lambda trial: None
    trials: list[Trial] = field(default_factory=list)
    desktops: int = 0
    gui: Gui = Gui.UNKNOWN

    async def run(self) -> Certificate:
        """Try all end states and return the certificate. A failure of the infrastructure is part of it."""
        began, began_s, failure = datetime.now(UTC), time.monotonic(), ""
        try:
            await self._try_all()
        except (OSGymError, DeskError, TargetMissing, TimeoutError) as error:
            failure = f"{type(error).__name__}: {error}"[:500]
        return Certificate(
            task=self.subject.name,
            digest=self.subject.digest,
            instruction=self.subject.instruction[:1000],
            image=self.settings.image,
            version=__version__,
            seed=self.settings.seed,
            began=began.isoformat(timespec="seconds"),
            duration_s=round(time.monotonic() - began_s, 1),
            desktops=self.desktops,
            gui=self.gui,
            trials=tuple(self.trials),
            findings=tuple(
                findings(self.subject.task, {trial.end for trial in self.trials}, self.subject.typed)
            ),
            failure=failure,
        )

    async def _try_all(self) -> None:
        subject = self.subject
        before = await self._try_nothing()
        for way, steps in subject.wrong.items():
            await self._play(Kind.WRONG, way, steps, 0.0)
        if subject.oracle is None and subject.script is None:
            return
        for number in range(1, self.settings.golden_runs):
            await self._play(Kind.GOLDEN, f"oracle {number}", subject.oracle, 1.0)
        for way, steps in subject.right.items():
            await self._play(Kind.RIGHT, way, steps, 1.0)
        await self._try_ends(before)

    # Ways ----------------------------------------------------------------------------------------

    async def _play(self, kind: Kind, end: str, steps: Steps | None, must: float) -> None:
        """Play a way on a desktop of its own, and score it as a policy's end is scored."""
        async with self._desk() as desk:
            note = await self._act(desk, steps)
            self._add(Trial(kind, end, "", must, *_scored(await desk.episode.evaluate(), note)))

    async def _try_nothing(self) -> Mapping[str, bytes]:
        """Score the untouched desktop; return the contents of its files."""
        async with self._desk() as desk:
            before = await desk.files()
            await desk.play(NOTHING)
            scored = _scored(await desk.episode.evaluate())
        self._add(Trial(Kind.UNTOUCHED, "nothing done", "", 0.0, *scored))
        return before

    async def _act(self, desk: Desk, steps: Steps | None) -> str:
        """Play steps, or the oracle's script; return what went wrong, which the score shows."""
        try:
            if steps is not None:
                await desk.play(steps)
            elif self.subject.script is not None:
                await desk.run_script(self.subject.script)
        except (TargetMissing, DeskError) as error:
            return str(error)[:300]
        return ""

    # End states ------------------------------------------------------------------------------------

    async def _try_ends(self, before: Mapping[str, bytes]) -> None:
        """Play the golden end and try end states that are made from it, on as few desktops as possible.

        Args:
            before: Contents of the files after the set-up.
        """
        golden: GoldenEnd | None = None
        left: list[End] = []
        control_every = CONTROL_EVERY
        for _ in range(MAX_DESKTOPS):
            async with self._desk() as desk:
                listing = await desk.listing()
                note = await self._act(desk, self.subject.oracle)
                acted = await desk.listing() if self.subject.task["evaluator"].get("postconfig") else None
                scored = _scored(await desk.score(prepare=True), note)
                if golden is None or scored[0] != 1:
                    self._add(Trial(Kind.GOLDEN, "oracle before the end states", "", 1.0, *scored))
                if scored[0] != 1:
                    return
                await desk.save()
                prepared = set() if acted is None else desk.golden.keys() - acted.keys()
                desk.always_prepares = self.subject.reads_preparation(prepared)
                if golden is None:
                    golden = await self._look(desk, listing, before, prepared)
                    dice = random.Random(self.settings.seed)  # noqa: S311
                    left = [
                        *await self._saved_again(desk, golden),
                        *ends_of(golden, dice, self.settings.max_ends),
                    ]
                left = await self._try_in_place(desk, left, control_every)
                if not left:
                    await self._try_windows(desk, golden)
                    break
            control_every = 1
        for end in left:
            self._add(_trial(end, None, "not tried: the golden end could not be restored on any desktop"))
        if golden is not None and golden.files:
            await self._try_shell(golden)

    async def _saved_again(self, desk: Desk, golden: GoldenEnd) -> list[End]:
        """Return the golden end with its documents saved again by the office suite."""
        ends = []
        for file in [file for file in golden.files if file.path.endswith(OFFICE_ENDINGS)][:MAX_SAVED_AGAIN]:
            data = await desk.saved_by_office(file.path)
            if data is not None:
                edit = Write(file.path, data)
                ends.append(End("saved again by the office suite", file.path, Must.EARN_ALL, (edit,)))
        return ends

    async def _try_windows(self, desk: Desk, golden: GoldenEnd) -> None:
        """Leave a further window open, then close all. Neither changes an end that lies in files."""
        must = 1.0 if golden.files or golden.removed else None
        for end, change in (
            ("another window left open", desk.open_a_window),
            ("windows closed", desk.close_windows),
        ):
            if await change():
                earned, note = _scored(await desk.score(prepare=False))
                allowed = self.subject.allowance(end)
                self._add(Trial(Kind.EQUIVALENT, end, "", must, earned, note, allowed))

    async def _try_in_place(self, desk: Desk, ends: Sequence[End], control_every: int) -> list[End]:
        """Try end states on one desktop; return those that are left when the golden end cannot be restored.

        Args:
            control_every: Number of end states after which the golden end is scored again. One of them may
                have broken the desktop for the others, so all of them are left if it earns less than 1 then.
        """
        pending: list[Trial] = []
        tried: list[End] = []
        for number, end in enumerate(ends):
            try:
                await desk.apply(end.edits)
                earned, note = _scored(await desk.score(prepare=False))
                await desk.restore(end.edits)
            except DeskError as error:
                self._add(_trial(end, None, str(error)[:300]))
                return [*tried, *ends[number + 1 :]]
            trial = _trial(end, earned, note)
            surprising = trial.is_wrong and trial.must == 1
            pending.append(replace(trial, allowed=self.subject.allowance(end.name)))
            tried.append(end)
            if surprising or len(pending) == control_every or number + 1 == len(ends):
                again, why = _scored(await desk.score(prepare=False))
                if again != 1:
                    # A second score of 1 means that the golden end is there and the check is not repeatable.
                    if again is not None and _scored(await desk.score(prepare=False))[0] == 1:
                        self._add(Trial(Kind.GOLDEN, "the same end scored twice", "", 1.0, again, why))
                    if len(pending) == 1:  # it was tried on a good desktop
                        self._add(pending[0])
                        return list(ends[number + 1 :])
                    return [*tried, *ends[number + 1 :]]
                for one in pending:
                    self._add(one)
                pending, tried = [], []
        return []

    async def _look(
        self, desk: Desk, before: Listing, old: Mapping[str, bytes], prepared: Collection[str]
    ) -> GoldenEnd:
        """Return the golden end: the files that the task is about, and others beside them.

        A changed file of a program's own state counts if the check notices that it was put back. What the
        check's preparation made (`prepared`) does not count.
        """
        found = changes(before, {path: entry for path, entry in desk.golden.items() if path not in prepared})
        hidden = [path for path in (*found.files, *found.removed) if is_hidden(path)]
        about = [*visible(found.files), *visible(found.removed)]
        for path in worth_a_probe(hidden, self.subject.task):
            edit: Edit = Write(path, old[path]) if path in old else Remove(path)
            await desk.apply([edit])
            earned, _ = _scored(await desk.score(prepare=False))
            await desk.restore([edit])
            if earned is not None and earned < 1:
                about.append(path)
        contents = await desk.read([path for path in found.files if path in about], MAX_FILE_BYTES)
        kept = await desk.read(kept_paths(before, desk.golden), 64 << 10)
        return GoldenEnd(
            files=tuple(GoldenFile(path, data, old.get(path)) for path, data in contents.items()),
            modes={path: desk.golden[path].mode for path in contents},
            folders=tuple(visible(found.folders)),
            removed={path: old[path] for path in found.removed if path in about and path in old},
            kept=kept,
            losses=losses(desk.golden, [*about, *found.folders]),
        )

    async def _try_shell(self, golden: GoldenEnd) -> None:
        """Write the golden files on a fresh desktop: whether the check sees that no application was used."""
        edits: list[Edit] = [Write(file.path, file.data) for file in golden.files]
        edits += [Remove(path) for path in golden.removed]
        async with self._desk() as desk:
            try:
                await desk.apply(edits)
            except DeskError as error:
                log.info("%s: the golden files cannot be written by a shell: %s", self.subject.name, error)
                return
            earned, note = _scored(await desk.score(prepare=True))
        self._add(Trial(Kind.SHELL, "golden files written by a shell", "", None, earned, note))
        if earned is not None and self.subject.script is None:
            self.gui = Gui.FREE if earned >= 1 else Gui.REQUIRED

    # What all share --------------------------------------------------------------------------------

    @asynccontextmanager
    async def _desk(self) -> AsyncIterator[Desk]:
        """A fresh desktop with the task's set-up."""
        self.desktops += 1
        async with self.client.episode(self.subject.playable()) as episode:
            yield Desk(episode)

    def _add(self, trial: Trial) -> None:
        self.trials.append(trial)
        self.on_trial(trial)


def _scored(evaluation: Evaluation, note: str = "") -> tuple[float | None, str]:
    """Return the reward and the explanation of the check that failed."""
    if evaluation.failure is not None:
        return None, f"{evaluation.failure.code}: {evaluation.failure.message}"[:300]
    notes = [str(check.get("note", "")) for check in evaluation.details if (check.get("score") or 0) < 1]
    said = "; ".join(part for part in (note, *notes) if part)
    return evaluation.reward, said[:300] if evaluation.reward != 1 else note


def _trial(end: End, earned: float | None, note: str) -> Trial:
    wrong = end.must is Must.EARN_NOTHING
    kind = Kind.MUTATION if wrong else Kind.EQUIVALENT
    return Trial(kind, end.name, end.about, 0.0 if wrong else 1.0, earned, note)
