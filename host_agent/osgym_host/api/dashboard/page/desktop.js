// One desktop as it is now: its picture, the last action drawn on it, its steps.

import { Picture } from "./api.js";
import { badge, facts, make, say, seconds, shown } from "./dom.js";
import { Lines, Marked, StepList } from "./steps.js";

const WIDTH = 1280;
const EVERY_MS = 400;

export class Desktop {
  constructor(main, id) {
    this.id = id;
    this.stop = new AbortController();
    this.marked = new Marked();
    this.picture = new Picture(this.marked.image);
    this.title = make("h1");
    this.about = make("div");
    this.list = new StepList((index) => this.open(index));
    this.stepsTitle = make("h2", {}, "Steps");
    this.note = make("p", { class: "faint" });
    const side = make("aside", {}, this.about, this.stepsTitle, this.note, this.list.element);
    main.append(make("p", {}, make("a", { href: "#/desktops" }, "← All desktops")), this.title,
      make("div", { class: "look" }, make("div", {}, this.marked.element), side));
    this.watch();
  }

  show({ rows, host }) {
    this.row = rows.find((row) => row.replica_id === this.id);
    this.marked.screen(...host.screen);
    this.title.replaceChildren(`Desktop ${this.id} `, this.row ? badge(this.row.state) : badge("ended", "gone"));
    if (this.row?.episode_id !== this.episode) this.begin(this.row?.episode_id ?? null);
    const row = this.row ?? {};
    this.about.replaceChildren(facts([
      ["Task", row.task_id],
      ["Episode", this.episode && make("a", { href: `#/episode/${encodeURIComponent(this.episode)}` }, this.episode)],
      ["Instruction", this.lines?.start?.instruction],
      ["Step", row.step],
      ["Last call", row.idle_s == null ? null : `${seconds(row.idle_s)} ago`],
      ["Generation", row.generation], ["Age", row.age_s == null ? null : seconds(row.age_s)],
      ["Memory", row.pss_mib == null ? null : `${Math.round(row.pss_mib)} MiB`],
      ["CPU time", row.cpu_s == null ? null : seconds(row.cpu_s)],
      ["Written", row.overlay_mib == null ? null : `${row.overlay_mib} MiB`],
      ["Why", row.reason],
    ]));
    if (!this.row || !["leased", "ready"].includes(this.row.state)) this.marked.none("It has no picture now.");
  }

  begin(episode) {
    this.episode = episode;
    this.lines = episode ? new Lines(episode) : null;
    this.list.element.replaceChildren();
    this.list.chosen = null;
    say(this.note, episode ? "" : "Nobody leases it.");
  }

  /** Look again and again while the page is open and seen. */
  async watch() {
    while (!this.stop.signal.aborted) {
      if (!document.hidden && ["leased", "ready"].includes(this.row?.state)) await this.look().catch(() => {});
      await new Promise((done) => setTimeout(done, EVERY_MS));
    }
  }

  async look() {
    const path = `v1/replicas/${encodeURIComponent(this.id)}/screenshot?width=${WIDTH}`;
    await this.picture.show(path, this.stop.signal);
    this.marked.shown();
    const lines = this.lines;
    if (!lines?.recorded) return;
    const last = lines.steps.at(-1)?.step ?? 0;
    if (lines.next > 0 && last >= (this.row.step ?? 0)) return;
    await lines.more(this.stop.signal);
    if (this.lines !== lines) return;
    this.list.show(lines.steps, null);
    this.marked.mark(lines.steps.at(-1)?.actions);
    say(this.note, lines.recorded ? "" : "Steps are not recorded on this host (trajectory: off).");
  }

  open(index) {
    location.hash = `#/episode/${encodeURIComponent(this.episode)}?step=${shown(String(index + 1))}`;
  }

  close() {
    this.stop.abort();
    this.picture.close();
  }
}
