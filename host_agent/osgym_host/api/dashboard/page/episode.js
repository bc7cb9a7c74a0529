// One episode as it was recorded: scrub through its steps, with the frames where they are kept.

import { Picture } from "./api.js";
import { clock, facts, make, say, seconds, shown } from "./dom.js";
import { Lines, Marked, StepList, aboutStep, problem } from "./steps.js";

export class EpisodePage {
  constructor(main, id, go) {
    this.id = id;
    this.go = go;
    this.stop = new AbortController();
    this.lines = new Lines(id);
    this.at = 0;
    this.marked = new Marked();
    this.picture = new Picture(this.marked.image);
    this.title = make("h1", {}, "Episode ", shown(id));
    this.about = make("div");
    this.detail = make("div");
    this.scrubber = make("input", { type: "range", min: 0, max: 0, value: 0, "aria-label": "Step",
      oninput: () => this.to(Number(this.scrubber.value)) });
    this.where = make("output");
    this.before = make("button", { type: "button", "aria-pressed": "false", onclick: () => this.flip() }, "Before");
    this.list = new StepList((index) => this.to(index + 1));
    const controls = make("div", { class: "controls" }, this.scrubber, this.where, this.before);
    const side = make("aside", {}, this.about, make("h2", {}, "Steps"), this.list.element);
    main.append(make("p", {}, make("a", { href: "#/episodes" }, "← All episodes")), this.title,
      make("div", { class: "look" }, make("div", {}, this.marked.element, controls, this.detail), side));
    this.keys = (event) => this.key(event);
    addEventListener("keydown", this.keys);
    this.load();
  }

  show({ host, query, step }) {
    this.marked.screen(...host.screen);
    if (step != null && Number(step) !== this.at) this.to(Number(step));
    void query;
  }

  async load() {
    while (!this.stop.signal.aborted && this.lines.recorded && !this.lines.end) {
      try {
        if (await this.lines.more(this.stop.signal)) this.told();
      } catch (error) {
        if (!this.stop.signal.aborted) say(this.where, error.message);
      }
      if (!this.lines.recorded) this.marked.none("Nothing was recorded of this episode (trajectory: off), or it is gone.");
      await new Promise((done) => setTimeout(done, 1000));
    }
  }

  told() {
    const { start, end, evaluation, steps } = this.lines;
    this.about.replaceChildren(facts([
      ["Task", start?.task_id], ["Instruction", start?.instruction],
      ["Replica", start && `${start.replica_id}, generation ${start.generation}`],
      ["Began", start && clock(start.time)],
      ["Took", start && end && seconds(end.time - start.time)],
      ["Reward", evaluation && (evaluation.reward == null ? "none" : String(evaluation.reward))],
      ["Evaluation", evaluation?.error && `${evaluation.error.code}: ${evaluation.error.message}`],
      ["Ended", end && `${end.termination_reason} (${end.cause})`],
      ["Set-up warnings", start?.setup_warnings?.length ? start.setup_warnings : null],
      ["Branched from", start?.parent && `${start.parent.episode_id}, step ${start.parent.step}`],
    ]));
    const first = this.scrubber.max === "0";
    this.scrubber.max = steps.length;
    this.list.show(steps, this.at - 1);
    if (first) this.to(Math.min(this.at || steps.length, steps.length));
  }

  /** Show what step `number` answered with; 0 is the first frame. */
  async to(number) {
    this.at = Math.max(0, Math.min(number, this.lines.steps.length || number));
    const step = this.lines.steps[this.at - 1];
    this.scrubber.value = this.at;
    this.scrubber.setAttribute("aria-valuetext", `step ${this.at} of ${this.lines.steps.length}`);
    say(this.where, `step ${this.at} of ${this.lines.steps.length}`);
    this.list.show(this.lines.steps, this.at - 1);
    const wrong = step && problem(step);
    this.detail.replaceChildren(step ? facts([...aboutStep(step), ["Note", wrong?.text]]) : "");
    this.go({ step: String(this.at) });
    await this.frame(step);
  }

  async frame(step) {
    const before = this.before.getAttribute("aria-pressed") === "true";
    const person = step?.kind === "intervention";
    const number = step && before && !person ? this.lines.steps[this.at - 2]?.step ?? 0 : step?.step ?? 0;
    const wanted = `${this.at}/${before}`;
    this.wanted = wanted;
    this.picture.etag = null;
    try {
      await this.picture.show(`v1/episodes/${encodeURIComponent(this.id)}/frames/${number}`, this.stop.signal);
      if (this.wanted !== wanted) return;
      this.marked.shown();
      this.marked.mark(before || person ? step?.actions : []);
    } catch (error) {
      if (this.wanted === wanted && !this.stop.signal.aborted) this.marked.none(error.message);
    }
  }

  flip() {
    this.before.setAttribute("aria-pressed", String(this.before.getAttribute("aria-pressed") !== "true"));
    this.frame(this.lines.steps[this.at - 1]);
  }

  key(event) {
    if (event.target.matches?.("input, textarea") || event.altKey || event.ctrlKey || event.metaKey) return;
    const moves = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
    if (event.key === "b") this.flip();
    else if (event.key in moves) this.to(Math.max(0, Math.min(this.lines.steps.length, this.at + moves[event.key])));
    else return;
    event.preventDefault();
  }

  close() {
    this.stop.abort();
    removeEventListener("keydown", this.keys);
    this.picture.close();
  }
}
