// A desktop of one's own: a lease, and mouse and keyboard as steps of it. Fresh, or a copy of what runs elsewhere.

import { Picture, ask, json, record } from "./api.js";
import { make, say } from "./dom.js";
import { Hands, SETTLE, Turns, newId } from "./hands.js";
import { Marked } from "./steps.js";

const LEASE_S = 60;
const LOOK_MS = 250;
const WIDTH = 1280;
const MANY_STEPS = 1_000_000;

export class Use {
  /** `of`: the replica to copy; `checkpoint`: what to go on from; neither: a fresh desktop. */
  constructor(main, { of, checkpoint }) {
    this.from = { of, checkpoint };
    this.marked = new Marked();
    this.picture = new Picture(this.marked.image);
    this.screen = [1920, 1080];
    this.turns = new Turns({
      send: (seq, actions) => record(this.path("step"), {
        body: { lease: this.episode.lease, seq, actions, settle: SETTLE, observe: this.look() },
      }),
      seen: (answer) => this.saw(answer),
      refused: (error) => say(this.note, error.message),
    });
    this.note = make("p", { role: "status" }, of ? `Copying desktop ${of} …` : "Leasing a desktop …");
    this.end = make("button", { type: "button", onclick: () => this.close() }, "Give it back");
    const area = this.marked.element;
    const hint = make("p", { class: "faint" }, "Click into it to type. Ctrl+Alt+Shift gives the keyboard back to the browser. ",
      "What you do is recorded as an episode, as a policy's steps are.");
    const title = of ? `A copy of desktop ${of}` : "A desktop of your own";
    main.append(make("h1", {}, title), make("div", { class: "controls" }, this.end, this.note), area, hint);
    this.hands = new Hands(area, () => this.screen, (action) => {
      if (this.episode && !this.closed) this.turns.do(action);
    });
    this.leaving = () => this.close();
    addEventListener("pagehide", this.leaving);
    this.run();
  }

  show({ host }) {
    this.screen = host.screen;
    this.marked.screen(...host.screen);
  }

  /** Lease, then send what was done, and look while nothing is. */
  async run() {
    try {
      this.episode = await this.lease();
      if (this.closed) return await this.giveBack();
      this.turns.seq = this.episode.last_seq;
      this.marked.shown();
      say(this.note, `Replica ${this.episode.replica_id}, episode ${this.episode.episode_id}`);
      this.marked.element.focus();
      while (!this.closed) {
        if (!this.turns.waiting.length) await this.observe();
        await this.turns.turn(LOOK_MS);
      }
    } catch (error) {
      if (!this.closed) this.over(error);
    }
  }

  async lease() {
    const { of, checkpoint } = this.from;
    if (of) {
      const body = { request_id: newId(), lease_ttl_s: LEASE_S, wait_s: 30 };
      return (await json(`v1/replicas/${encodeURIComponent(of)}/fork`, { body })).children[0];
    }
    const opened = await record("v1/episodes", { body: {
      request_id: newId(), task: null, wait_s: 30, lease_ttl_s: LEASE_S, settle: SETTLE, observe: this.look(),
      ...(checkpoint && { checkpoint, max_steps: MANY_STEPS }),
    } });
    await this.saw(opened);
    return opened.meta;
  }

  async observe() {
    await this.saw(await record(this.path("observe"), { body: { lease: this.episode.lease, observe: this.look() } }));
  }

  async saw({ meta, image }) {
    const frame = meta.observation.frame;
    this.hash = frame.hash;
    if (image.byteLength) await this.picture.put(new Blob([image], { type: `image/${frame.format}` }));
  }

  look() {
    const size = [WIDTH, Math.round((WIDTH * this.screen[1]) / this.screen[0])];
    return { format: "webp", quality: 75, size, ...(this.hash && { unless_hash: this.hash }) };
  }

  path(what) {
    return `v1/episodes/${encodeURIComponent(this.episode.episode_id)}/${what}`;
  }

  over(error) {
    this.closed = true;
    this.end.hidden = true;
    this.marked.none("It is over.");
    say(this.note, `The desktop is gone: ${error.message}`);
  }

  giveBack() {
    const { lease, episode_id: id } = this.episode;
    return ask(`v1/episodes/${encodeURIComponent(id)}`, { method: "DELETE", headers: { "OSGym-Lease": lease }, keepalive: true });
  }

  close() {
    removeEventListener("pagehide", this.leaving);
    if (this.closed) return;
    this.closed = true;
    this.turns.wake?.();
    this.picture.close();
    if (this.episode) this.giveBack().catch(() => {});
    if (/^#\/(use|copy|restore)\b/.test(location.hash)) location.hash = "#/desktops";
  }
}
