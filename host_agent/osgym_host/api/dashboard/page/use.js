// A desktop of one's own: a lease, and mouse and keyboard as steps of it, one after another.

import { Picture, Refused, ask, record } from "./api.js";
import { make, say } from "./dom.js";
import { keyAction } from "./keys.js";
import { Marked } from "./steps.js";

const LEASE_S = 60;
const LOOK_MS = 250;
const SETTLE = { policy: "fixed", pause_ms: 20 };
const WIDTH = 1280;
const BUTTONS = ["left", "middle", "right", "back", "forward"];

export class Use {
  constructor(main) {
    this.waiting = [];
    this.seq = 0;
    this.marked = new Marked();
    this.picture = new Picture(this.marked.image);
    this.screen = [1920, 1080];
    this.note = make("p", { role: "status" }, "Leasing a desktop …");
    this.end = make("button", { type: "button", onclick: () => this.close() }, "Give it back");
    const area = this.marked.element;
    area.classList.add("mine");
    area.tabIndex = 0;
    area.setAttribute("role", "application");
    area.setAttribute("aria-label", "The desktop: it takes mouse and keyboard; Ctrl+Alt+Shift gives the keyboard back");
    const hint = make("p", { class: "faint" }, "Click into it to type. Ctrl+Alt+Shift gives the keyboard back to the browser. ",
      "What you do is recorded as an episode, as a policy's steps are.");
    main.append(make("h1", {}, "A desktop of your own"), make("div", { class: "controls" }, this.end, this.note), area, hint);
    this.listen(area);
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
      const request = [...crypto.getRandomValues(new Uint8Array(12))].map((b) => b.toString(16).padStart(2, "0")).join("");
      const opened = await record("v1/episodes", { body: {
        request_id: request, task: null, wait_s: 30, lease_ttl_s: LEASE_S, settle: SETTLE, observe: this.look(),
      } });
      this.episode = opened.meta;
      if (this.closed) return await this.giveBack();
      this.marked.shown();
      await this.saw(opened);
      say(this.note, `Replica ${this.episode.replica_id}, episode ${this.episode.episode_id}`);
      this.marked.element.focus();
      while (!this.closed) await this.turn();
    } catch (error) {
      if (!this.closed) this.over(error);
    }
  }

  async turn() {
    const actions = this.waiting.splice(0);
    if (actions.length) {
      await this.step(actions);
    } else {
      await this.saw(await record(this.path("observe"), { body: { lease: this.episode.lease, observe: this.look() } }));
      await new Promise((done) => { this.wake = done; setTimeout(done, LOOK_MS); });
    }
  }

  /** One step; where the answer is lost it is sent again with its number, so that nothing happens twice. */
  async step(actions) {
    const body = { lease: this.episode.lease, seq: this.seq + 1, actions, settle: SETTLE, observe: this.look() };
    for (let attempt = 0; ; attempt += 1) {
      try {
        const answer = await record(this.path("step"), { body });
        this.seq += 1;
        return await this.saw(answer);
      } catch (error) {
        if (error instanceof Refused && error.code === "invalid_action") return say(this.note, error.message);
        if (error instanceof Refused || attempt === 3) throw error;
      }
    }
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

  /** Do this next; moves that nobody needs any more are left out. */
  do(action) {
    if (!this.episode || this.closed) return;
    if (action.op === "move" && this.waiting.at(-1)?.op === "move") this.waiting.pop();
    this.waiting.push(action);
    this.wake?.();
  }

  listen(area) {
    const held = new Set();
    const letGo = (event) => {
      for (const button of held) this.do({ op: "button_up", button, ...this.at(event) });
      held.clear();
    };
    area.addEventListener("pointerdown", (event) => {
      area.focus();
      area.setPointerCapture(event.pointerId);
      held.add(BUTTONS[event.button]);
      this.do({ op: "button_down", button: BUTTONS[event.button], ...this.at(event) });
      event.preventDefault();
    });
    area.addEventListener("pointermove", (event) => this.do({ op: "move", ...this.at(event) }));
    area.addEventListener("pointerup", letGo);
    area.addEventListener("pointercancel", letGo);
    area.addEventListener("contextmenu", (event) => event.preventDefault());
    area.addEventListener("wheel", (event) => {
      this.do({ op: "scroll", ...this.at(event), dx: Math.round(event.deltaX), dy: Math.round(event.deltaY), unit: "px" });
      event.preventDefault();
    }, { passive: false });
    area.addEventListener("keydown", (event) => {
      if (event.ctrlKey && event.altKey && event.shiftKey) return area.blur();
      const action = keyAction(event);
      if (action) this.do(action);
      if (!(event.ctrlKey && event.key.toLowerCase() === "v")) event.preventDefault();
    });
    area.addEventListener("paste", (event) => {
      const text = event.clipboardData.getData("text");
      if (text) this.do({ op: "type", text });
    });
  }

  /** Where in the desktop an event is. */
  at(event) {
    const box = this.marked.element.getBoundingClientRect();
    const place = (value, from, size, pixels) => Math.max(0, Math.min(pixels - 1, Math.round(((value - from) / size) * pixels)));
    return {
      x: place(event.clientX, box.left, box.width, this.screen[0]),
      y: place(event.clientY, box.top, box.height, this.screen[1]),
    };
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
    this.wake?.();
    this.picture.close();
    if (this.episode) this.giveBack().catch(() => {});
    if (location.hash.startsWith("#/use")) location.hash = "#/desktops";
  }
}
