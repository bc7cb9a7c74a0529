// One episode as it was recorded: scrub through its steps, with the frames where they are kept, as `osgym data replay` shows it.

import { ask } from "./api.js";
import { clock, facts, inWords, make, say, seconds, shown } from "./dom.js";
import { Film, Frames } from "./film.js";
import { Lines, Marked, StepList, problem, tellStep } from "./steps.js";

const NO_SCREENS = "Its screens were not recorded: the host's setting trajectory: frames keeps them.";
const MAKE_MS = 200_000;
const MODES = { before: "Before", after: "After", difference: "Difference" };
const SPEEDS = { "½ per s": 2000, "1 per s": 1000, "2 per s": 500, "5 per s": 200 };

export class EpisodePage {
  constructor(main, { id, step }, go) {
    this.id = id;
    this.asked = step;
    this.go = go;
    this.stop = new AbortController();
    this.lines = new Lines(id);
    this.frames = new Frames(id, this.stop.signal);
    this.at = null;
    this.mode = "before";
    this.timer = 0;
    this.urls = new Map();
    this.marked = new Marked();
    this.above = make("img", { class: "over", alt: "", hidden: true });
    this.marked.image.after(this.above);
    this.film = new Film(this.frames, (at) => this.choose(at));
    this.list = new StepList((index) => this.choose(index + 1));
    this.told = make("div", { class: "told" });
    this.about = make("div");
    main.append(make("p", {}, make("a", { href: "#/episodes" }, "← All episodes")),
      make("h1", {}, "Episode ", shown(id)),
      make("div", { class: "look" },
        make("div", {}, this.marked.element, this.controls(), this.film.element, this.words()),
        make("aside", {}, this.told, make("h2", {}, "Steps"), this.list.element, make("h2", {}, "This episode"), this.about)));
    this.keys = (event) => this.key(event);
    addEventListener("keydown", this.keys);
    this.load();
  }

  controls() {
    const button = (words, onclick, more) => make("button", { type: "button", onclick, ...more }, words);
    this.play = button("Play", () => this.run(!this.timer));
    this.speed = make("select", { "aria-label": "Steps in a second", onchange: () => this.timer && this.run(true) },
      ...Object.keys(SPEEDS).map((words) => make("option", { selected: SPEEDS[words] === 1000 }, words)));
    this.scrubber = make("input", { type: "range", min: 0, max: 0, value: 0, "aria-label": "Step",
      oninput: () => this.choose(Number(this.scrubber.value)) });
    this.where = make("output");
    this.modes = Object.entries(MODES).map(([mode, words]) => button(words, () => this.look(mode), { "aria-pressed": String(mode === this.mode), "data-mode": mode }));
    return make("div", { class: "controls" }, this.play, this.speed, this.scrubber, this.where, ...this.modes);
  }

  /** The line below the strip: keys, and the episode as a file. */
  words() {
    this.file = make("button", { type: "button", disabled: true, onclick: () => this.download() }, "Download as one HTML file");
    this.said = make("span", { role: "status", class: "faint" });
    const key = (name) => make("kbd", {}, name);
    this.help = make("details", {}, make("summary", {}, "Keys"), key("←"), " ", key("→"), " a step, ", key("Home"), " ", key("End"), " first and last, ",
      key("Space"), " play, ", key("b"), " before, ", key("a"), " after, ", key("d"), " difference, ", key("?"), " these words");
    return make("div", { class: "controls" }, this.file, this.said, this.help);
  }

  show({ host, step }) {
    this.marked.screen(...host.screen);
    if (this.at !== null && step != null && this.position(step) !== this.at) this.to(this.position(step));
  }

  /** The position that an address means: 0 the beginning, then the steps, then the end. */
  position(step) {
    return step === "end" ? this.last : Math.max(0, Math.min(Number(step) || 0, this.last));
  }

  get over() {
    return this.lines.end !== null || this.lines.evaluation !== null;
  }

  get last() {
    return this.lines.steps.length + (this.over ? 1 : 0);
  }

  async load() {
    while (!this.stop.signal.aborted && this.lines.recorded && !this.lines.end) {
      try {
        if (await this.lines.more(this.stop.signal)) this.tell();
      } catch (error) {
        if (!this.stop.signal.aborted) say(this.where, error.message);
      }
      if (!this.lines.recorded) this.marked.none("Nothing was recorded of this episode (trajectory: off), or it is gone.");
      await new Promise((done) => setTimeout(done, 1000));
    }
  }

  tell() {
    const { start, end, evaluation, steps } = this.lines;
    const outcome = evaluation && (evaluation.reward == null ? "none" : `${evaluation.reward}${evaluation.valid_for_training ? "" : ", not for training"}`);
    this.about.replaceChildren(facts([
      ["Task", start?.task_id], ["Instruction", start?.instruction], ["Run", start?.run],
      ["Replica", start && `${start.replica_id}, generation ${start.generation}`],
      ["Began", start && clock(start.time)],
      ["Took", start && end && seconds(end.time - start.time)],
      ["Reward", outcome],
      ["Evaluation", evaluation?.error && `${evaluation.error.code}: ${evaluation.error.message}`],
      ["Ended", end && `${end.termination_reason} (${end.cause})`],
      ["Set-up warnings", start?.setup_warnings?.length ? start.setup_warnings : null],
      ["Branched from", start?.parent && `${start.parent.episode_id}, step ${start.parent.step}`],
    ]));
    this.scrubber.max = this.last;
    const stepTile = (step, index) => ({ words: label(step), frame: this.frameAt(index), wrong: problem(step) });
    const tiles = [{ words: "beginning", frame: this.frameAt(0) }, ...steps.map(stepTile)];
    if (this.over) tiles.push({ words: "end", frame: this.frameAt(steps.length) });
    this.film.show(tiles, this.at);
    this.film.element.hidden = tiles.every(({ frame }) => frame === null);
    this.offer();
    const asked = this.asked == null ? Math.max(1, steps.length) : this.position(this.asked);
    if (this.at === null) this.to(Math.min(asked, this.last));
    else this.list.show(steps, this.at - 1);
    if (this.at === this.last && this.over) this.tellEnd();
  }

  /** The file is made of an episode that has ended; what it will lack is said before. */
  offer() {
    const lines = [this.lines.start, ...this.lines.steps.filter(({ kind }) => kind === "step")];
    const lost = lines.filter((line) => line?.frame_dropped).length;
    this.file.disabled = !this.lines.end || this.making;
    this.file.title = this.lines.end ? "What osgym data replay makes: it opens from a mail, without a network" : "When the episode has ended.";
    if (this.making || this.said.dataset.kept) return;
    say(this.said, lines.every((line) => line?.frame == null) ? `${NO_SCREENS} The file has all but them.`
      : lost ? `${lost} of its screens were not kept.` : "");
  }

  async download() {
    this.making = true;
    this.offer();
    say(this.said, "Making the file …");
    try {
      const answer = await ask(`v1/episodes/${encodeURIComponent(this.id)}/replay`, { signal: this.stop.signal, limitMs: MAKE_MS });
      const blob = await answer.blob(), url = URL.createObjectURL(blob);
      const link = make("a", { href: url, download: `${this.id}.html` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(url), 10_000);
      say(this.said, `${link.download}, ${(blob.size / 2 ** 20).toFixed(1)} MiB`);
    } catch (error) {
      if (!this.stop.signal.aborted) say(this.said, error.message);
    }
    this.said.dataset.kept = "1";
    this.making = false;
    this.offer();
  }

  /** The number of the frame at a position, null where none is kept; one that did not change is the one before. */
  frameAt(position) {
    for (let at = Math.min(position, this.lines.steps.length); at >= 0; at -= 1) {
      const line = at ? this.lines.steps[at - 1] : this.lines.start;
      if (line?.frame) return Number.parseInt(line.frame, 10);
      if (line?.kind !== "intervention" && !line?.observation?.frame?.unchanged) return null;
    }
    return null;
  }

  choose(position) {
    if (this.timer) this.run(false);
    this.to(position);
  }

  /** Show a position. */
  to(position) {
    const { steps } = this.lines;
    this.at = Math.max(0, Math.min(position, this.last));
    const step = steps[this.at - 1];
    const words = step ? `step ${this.at} of ${steps.length}` : this.at ? "the end" : "the beginning";
    this.scrubber.value = this.at;
    this.scrubber.setAttribute("aria-valuetext", words);
    say(this.where, words);
    this.list.show(steps, this.at - 1);
    this.film.mark(this.at);
    if (step) this.told.replaceChildren(make("h2", {}, `Step ${this.at} of ${steps.length}`), ...tellStep(step));
    else if (this.at) this.tellEnd();
    else this.told.replaceChildren(make("h2", {}, "The beginning"), make("p", { class: "faint" }, "The screen after the set-up of its task, before anything was done."));
    this.go({ step: this.over && this.at === this.last ? "end" : String(this.at) });
    this.picture();
  }

  tellEnd() {
    const { evaluation, end } = this.lines;
    const { reward, details, error, valid_for_training: valid } = evaluation ?? {};
    const said = !evaluation ? "It was not scored." : reward == null ? "No reward: the check could not be made." : `Reward ${reward}${valid ? "" : ", not for training"}`;
    this.told.replaceChildren(make("h2", {}, "The end"),
      make("p", { class: reward > 0 ? "good" : error ? "bad" : "" }, said),
      ...(error ? [make("p", { class: "bad" }, shown(`${error.code}: ${error.message}`))] : []),
      ...(details?.length ? [make("h3", {}, "Evaluation"), make("pre", {}, shown(JSON.stringify(details, null, 1), 20_000))] : []),
      ...(end ? [make("h3", {}, "Ended"), make("p", {}, shown(`${end.termination_reason} (${end.cause})`))] : []));
  }

  /** What is on the screen: the number of a frame, of one to compare it with, and what is drawn. */
  shown() {
    const step = this.lines.steps[this.at - 1];
    if (!step) return [this.frameAt(this.at), null, []];
    const before = this.frameAt(this.at - 1), after = this.frameAt(this.at);
    if (this.mode === "after" && step.kind !== "intervention") return [after, null, []];
    if (this.mode === "difference") return [before, after, []];
    return [before, null, step.actions];
  }

  async picture() {
    const [below, above, marks] = this.shown();
    const wanted = this.wanted = {};
    if (below === null) {
      this.above.hidden = true;
      return this.marked.none(NO_SCREENS);
    }
    try {
      const urls = await Promise.all([below, above].map((number) => (number === null ? null : this.url(number))));
      if (this.wanted !== wanted) return;
      this.marked.image.src = urls[0];
      this.above.hidden = urls[1] === null;
      if (urls[1]) this.above.src = urls[1];
      this.marked.shown();
      this.marked.mark(marks);
      const next = this.frameAt(this.at + 1);
      if (next !== null) this.frames.blob(next).catch(() => {});
    } catch (error) {
      if (this.wanted === wanted && !this.stop.signal.aborted) this.marked.none(error.message);
    }
  }

  /** An address of a frame's bytes; the last few stay. */
  async url(number) {
    const known = this.urls.get(number) ?? URL.createObjectURL(await this.frames.blob(number));
    this.urls.delete(number);
    this.urls.set(number, known);
    for (const [old, url] of this.urls) {
      if (this.urls.size <= 4) break;
      URL.revokeObjectURL(url);
      this.urls.delete(old);
    }
    return known;
  }

  look(mode) {
    this.mode = mode;
    for (const button of this.modes) button.setAttribute("aria-pressed", String(button.dataset.mode === mode));
    this.picture();
  }

  run(on) {
    clearInterval(this.timer);
    this.timer = 0;
    say(this.play, on ? "Pause" : "Play");
    if (!on) return;
    if (this.at === this.last) this.to(0);
    this.timer = setInterval(() => (this.at >= this.last ? this.run(false) : this.to(this.at + 1)), SPEEDS[this.speed.value]);
  }

  key(event) {
    const at = event.target;
    if (at.matches?.("input:not([type=range]), select, textarea") || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === " " && at.matches?.("button, summary")) return;
    const keys = {
      ArrowRight: () => this.choose(this.at + 1), ArrowLeft: () => this.choose(this.at - 1),
      Home: () => this.choose(0), End: () => this.choose(this.last), " ": () => this.run(!this.timer),
      b: () => this.look("before"), a: () => this.look("after"), d: () => this.look("difference"),
      "?": () => { this.help.open = !this.help.open; },
    };
    if (this.at === null || !Object.hasOwn(keys, event.key)) return;
    keys[event.key]();
    event.preventDefault();
  }

  close() {
    this.stop.abort();
    clearInterval(this.timer);
    removeEventListener("keydown", this.keys);
    this.film.close();
    for (const url of this.urls.values()) URL.revokeObjectURL(url);
  }
}

/** A step in the strip. */
function label(step) {
  const first = step.actions?.[0];
  return `${step.kind === "intervention" ? "person" : step.step} ${first ? inWords(first) : ""}`;
}
