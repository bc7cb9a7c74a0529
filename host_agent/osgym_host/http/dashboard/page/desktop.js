// One desktop as it is now: its picture, the last action drawn on it, its steps. Who may, acts on it or copies it.

import { Picture, json, lacks, record } from "./api.js";
import { badge, facts, make, say, seconds, shown } from "./dom.js";
import { memory } from "./figures.js";
import { Hands, SETTLE, Turns, newId } from "./hands.js";
import { OwnEvents } from "./events.js";
import { Lines, Marked, StepList } from "./steps.js";

const WIDTH = 1280;
const EVERY_MS = 400;
const REST_MS = 200;
const CHECKPOINT_S = 7 * 86400;
const TAKEN = "Mouse and keyboard are yours, between the policy's steps. Its trajectory says so, and its reward counts as not for training.";

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
    this.events = new OwnEvents(id);
    const side = make("aside", {}, this.about, this.stepsTitle, this.note, this.list.element, this.events.element);
    const button = (words, onclick) => make("button", { type: "button", onclick }, words);
    this.take = button("Take over", () => (this.hands ? this.letGo() : this.takeOver()));
    this.copy = button("Use a copy", () => { location.hash = `#/copy/${encodeURIComponent(this.id)}`; });
    this.keep = button("Checkpoint", () => this.checkpoint());
    this.said = make("p", { role: "status", class: "faint" });
    const controls = make("div", { class: "controls" }, this.take, this.copy, this.keep, this.said);
    main.append(make("p", {}, make("a", { href: "#/desktops" }, "← All desktops")), this.title,
      make("div", { class: "look" }, make("div", {}, this.marked.element, controls), side));
    this.watch();
  }

  show({ rows, host, may }) {
    this.row = rows.find((row) => row.replica_id === this.id);
    this.marked.screen(...host.screen);
    this.title.replaceChildren(`Desktop ${this.id} `, this.row ? badge(this.row.state) : badge("ended", "gone"));
    this.screen = host.screen;
    if (this.row?.episode_id !== this.episode) this.begin(this.row?.episode_id ?? null);
    this.offer(host, may);
    const row = this.row ?? {};
    this.about.replaceChildren(facts([
      ["Task", row.task_id],
      ["Episode", this.episode && make("a", { href: `#/episode/${encodeURIComponent(this.episode)}` }, this.episode)],
      ["Instruction", this.lines?.start?.instruction],
      ["Step", row.step], ["Reward", row.reward],
      ["Last call", row.idle_s == null ? null : `${seconds(row.idle_s)} ago`],
      ["Generation", row.generation], ["Age", row.age_s == null ? null : seconds(row.age_s)],
      ["Rest", row.rest], ["Memory", memory(row)],
      ["CPU time", row.cpu_s == null ? null : seconds(row.cpu_s)],
      ["Written", row.overlay_mib == null ? null : `${row.overlay_mib} MiB`],
      ["Why", row.reason],
    ]));
    if (!this.row || !["leased", "ready"].includes(this.row.state)) this.marked.none("It has no picture now.");
  }

  /** What can be done with it; a button that does nothing says why. */
  offer(host, may) {
    const idle = lacks(may, "admin") ?? (this.row?.state === "leased" ? null : "Nobody leases it: use a desktop of your own.");
    const rigid = host.branching ? null : `Runtime ${host.runtime} here makes no copies of a running desktop.`;
    for (const [button, why] of [[this.take, idle], [this.copy, idle ?? rigid], [this.keep, idle ?? rigid]]) {
      button.disabled = why !== null;
      button.title = why ?? "";
    }
  }

  takeOver() {
    const session = newId(), path = `v1/replicas/${encodeURIComponent(this.id)}/intervene`;
    const observe = { format: "webp", quality: 75, size: [WIDTH, Math.round((WIDTH * this.screen[1]) / this.screen[0])] };
    const turns = this.turns = new Turns({
      send: (seq, actions) => record(path, { body: { session, seq, actions, settle: SETTLE, observe } }),
      seen: ({ meta, image }) => {
        this.marked.shown();
        this.picture.etag = null; // the next look compares with this picture, not with the one before
        return this.picture.put(new Blob([image], { type: `image/${meta.observation.frame.format}` }));
      },
      refused: (error) => say(this.said, error.message),
    });
    this.hands = new Hands(this.marked.element, () => this.screen, (action) => this.act(action));
    this.take.textContent = "Let go";
    say(this.said, TAKEN);
    this.marked.element.focus();
    this.work(turns);
  }

  /** Where the pointer only passes is nothing that a policy's desktop should see: it goes where it rests. */
  act(action) {
    clearTimeout(this.rests);
    if (action.op !== "move" || this.hands.holding) this.turns.do(action);
    else this.rests = setTimeout(() => this.turns?.do(action), REST_MS);
  }

  async work(turns) {
    try {
      while (this.turns === turns && !this.stop.signal.aborted) await turns.turn(EVERY_MS);
    } catch (error) {
      if (this.turns !== turns) return;
      this.letGo();
      say(this.said, error.message);
    }
  }

  letGo() {
    this.hands?.stop();
    this.hands = this.turns = null;
    this.take.textContent = "Take over";
    say(this.said, "");
  }

  async checkpoint() {
    this.keep.disabled = true;
    say(this.said, "Taking a checkpoint …");
    try {
      const body = { request_id: newId(), ttl_s: CHECKPOINT_S };
      const made = await json(`v1/replicas/${encodeURIComponent(this.id)}/checkpoint`, { body });
      const at = make("a", { href: `#/restore/${encodeURIComponent(made.checkpoint_id)}` }, made.checkpoint_id);
      this.said.replaceChildren("Checkpoint ", at, `, ${Math.round(made.ram_mib + made.disk_mib)} MiB, kept for a week. `,
        "Open it, or go on from it in a script: ", make("code", {}, `client.restore("${made.checkpoint_id}")`));
    } catch (error) {
      say(this.said, error.message);
    }
    this.keep.disabled = false;
  }

  begin(episode) {
    this.letGo();
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
    if (!this.hands && lines.next > 0 && last >= (this.row.step ?? 0)) return;
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
    this.letGo();
    this.stop.abort();
    this.events.close();
    this.picture.close();
  }
}
