// The steps of an episode as they were recorded, and what they did drawn on a picture.

import { Refused, json } from "./api.js";
import { draw, inWords, make, say, shown } from "./dom.js";

const AT_ONCE = 500;

/** The lines of an episode's trajectory, read on from where they ended. */
export class Lines {
  constructor(episodeId) {
    this.path = `v1/episodes/${encodeURIComponent(episodeId)}/lines`;
    this.next = 0;
    this.start = this.end = this.evaluation = null;
    this.steps = [];
    this.recorded = true;
  }

  /** Read what came since; return whether anything did. */
  async more(signal) {
    const before = this.next;
    try {
      for (;;) {
        const { lines, next } = await json(`${this.path}?after=${this.next}&limit=${AT_ONCE}`, { signal });
        this.next = next;
        for (const line of lines) this.take(line);
        if (lines.length < AT_ONCE) break;
      }
    } catch (error) {
      if (!(error instanceof Refused) || error.status !== 404) throw error;
      this.recorded = false;
    }
    return this.next > before;
  }

  take(line) {
    if (line.kind === "step") this.judge(line.observation?.previous);
    if (line.kind === "step" || line.kind === "intervention") this.steps.push(line);
    else if (line.kind === "start") this.start = line;
    else if (line.kind === "evaluation") this.evaluation = line;
    else if (line.kind === "end") this.end = line;
  }

  /** Give a step what the next one's answer says of its frame: whether it was the final one. */
  judge(previous) {
    const step = previous && this.steps.findLast((one) => one.kind === "step");
    if (!step || step.seq !== previous.seq) return;
    step.final = previous.final;
    step.changedAfterMs = previous.changed_after_ms;
  }
}

/** The list of steps; `choose` is called with the index of the one that is clicked. */
export class StepList {
  constructor(choose) {
    this.choose = choose;
    this.element = make("ol", { class: "steps", "aria-label": "Steps" });
    this.chosen = null;
    this.judged = 0;
  }

  show(steps, chosen) {
    const atEnd = this.element.scrollHeight - this.element.scrollTop - this.element.clientHeight < 40;
    for (let index = this.element.children.length; index < steps.length; index += 1) {
      this.element.append(row(steps[index], () => this.choose(index)));
    }
    // What went wrong in a step may be known only from the next one's answer.
    for (let index = Math.max(0, this.judged - 1); index < steps.length; index += 1) {
      if (steps[index].final === false) mark(this.element.children[index], problem(steps[index]));
    }
    this.judged = steps.length;
    if (this.chosen !== chosen) {
      this.element.children[this.chosen]?.firstChild.removeAttribute("aria-current");
      const now = this.element.children[chosen]?.firstChild;
      now?.setAttribute("aria-current", "true");
      now?.scrollIntoView({ block: "nearest" });
      this.chosen = chosen;
    } else if (atEnd && chosen == null) {
      this.element.scrollTop = this.element.scrollHeight;
    }
  }
}

function row(step, onclick) {
  const words = make("span", {}, ...(step.actions ?? []).flatMap((action) => [make("code", {}, inWords(action)), " "]));
  const tone = problem(step);
  if (tone) words.append(make("span", { class: `said ${tone.tone}` }, tone.text));
  return make("li", {}, make("button", { type: "button", onclick },
    make("span", { class: "number" }, step.kind === "intervention" ? "person" : String(step.step)), words, make("span", { class: "number" }, took(step))));
}

function mark(item, { tone, text }) {
  if (!item.querySelector(".said")) item.querySelector("span:nth-of-type(2)").append(make("span", { class: `said ${tone}` }, text));
}

/** What went wrong in a step, in a word. */
export function problem(step) {
  const seen = step.observation ?? {};
  if (step.kind === "intervention") return { tone: "late", text: "a person acted" };
  if (seen.failed_index != null) return { tone: "bad", text: `action ${seen.failed_index} failed` };
  if (seen.screen_changed) return { tone: "late", text: "screen had changed" };
  if (step.line_dropped) return { tone: "late", text: "its line was too long to keep" };
  return (step.final ?? seen.final) === false ? { tone: "late", text: "frame not final" } : null;
}

function took(step) {
  const total = Number(step.observation?.timing_ms?.total) || parts(step).reduce((sum, [, ms]) => sum + ms, 0);
  return total ? `${Math.round(total)} ms` : "";
}

const parts = (step) => Object.entries(step.observation?.timing_ms ?? {})
  .filter(([name]) => name !== "total").map(([name, ms]) => [name, Number(ms) || 0]);

/** What is known of a step: what went wrong, what the model said, what was done, where the time went. */
export function tellStep(step) {
  const seen = step.observation ?? {}, settle = seen.settle, wrong = problem(step);
  const later = step.changedAfterMs == null ? "" : `: the screen changed ${Math.round(step.changedAfterMs)} ms later`;
  const most = Math.max(1, ...parts(step).map(([, ms]) => ms));
  const words = (step.actions ?? []).map(inWords).join("\n") || "nothing";
  return [
    wrong && make("p", { class: wrong.tone }, wrong.text, step.final === false ? later : ""),
    seen.failed_index != null && make("pre", {}, shown(seen.results)),
    ...(step.note ? [make("h3", {}, "The model"), make("pre", {}, shown(step.note, 20_000))] : []),
    make("h3", {}, step.kind === "intervention" ? "Done by a person" : "Done"), make("pre", {}, words, step.done && step.done !== step.actions?.at(-1)?.op ? `\n→ ${step.done}` : ""),
    ...(parts(step).length ? [make("h3", {}, `Took ${took(step)} in the desktop`), make("table", { class: "parts" }, ...parts(step).map(([name, ms]) => make("tr", {},
      make("td", { class: "faint" }, shown(name)), make("td", { class: "number" }, `${ms.toFixed(1)} ms`),
      make("td", {}, draw("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" }, draw("rect", { width: (100 * ms) / most, height: 8 }))))))] : []),
    ...(settle ? [make("h3", {}, "The wait for the screen"), make("p", {}, shown(`${settle.policy}: ${settle.reason} after ${Math.round(settle.wait_ms)} ms`))] : []),
  ].filter(Boolean);
}

/** A picture with what was done drawn on it. */
export class Marked {
  constructor() {
    this.image = make("img", { alt: "The screen", hidden: true });
    this.marks = draw("svg", { preserveAspectRatio: "none", "aria-hidden": "true" });
    this.empty = make("p", { class: "empty" });
    this.element = make("div", { class: "picture" }, this.image, this.marks, this.empty);
  }

  screen(width, height) {
    this.element.style.aspectRatio = `${width} / ${height}`;
    this.marks.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.radius = width / 90;
  }

  none(words) {
    this.image.hidden = true;
    this.marks.replaceChildren();
    say(this.empty, words);
  }

  shown() {
    this.image.hidden = false;
    say(this.empty, "");
  }

  mark(actions) {
    const points = (actions ?? []).flatMap((action) => this.of(action));
    this.marks.replaceChildren(...points);
  }

  of(action) {
    if (Array.isArray(action.path) && action.path.every((p) => Array.isArray(p) && p.every(Number.isFinite))) {
      return [draw("polyline", { points: action.path.map((p) => p.join(",")).join(" ") })];
    }
    if (!Number.isFinite(action.x) || !Number.isFinite(action.y)) return [];
    const where = { cx: action.x, cy: action.y, r: this.radius };
    return [draw("circle", { ...where, class: "halo" }), draw("circle", where)];
  }
}
