// A person's mouse and keyboard as actions, and the queue that sends them, one call after another.

import { Refused } from "./api.js";
import { keyAction } from "./keys.js";

export const SETTLE = { policy: "fixed", pause_ms: 20 };
const BUTTONS = ["left", "middle", "right", "back", "forward"];
const ATTEMPTS = 4;

/** A name that nobody else has. */
export function newId() {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((b) => b.toString(16).padStart(2, "0")).join("");
}

/** Mouse and keyboard over the picture of a desktop; `act` gets each action, until `stop`. */
export class Hands {
  constructor(area, screen, act) {
    this.area = area;
    this.screen = screen;
    this.act = act;
    this.holding = false;
    this.heard = new AbortController();
    area.classList.add("mine");
    area.tabIndex = 0;
    area.setAttribute("role", "application");
    area.setAttribute("aria-label", "The desktop: it takes mouse and keyboard; Ctrl+Alt+Shift gives the keyboard back");
    this.listen(area, { signal: this.heard.signal });
  }

  listen(area, options) {
    const held = new Set();
    const letGo = (event) => {
      for (const button of held) this.act({ op: "button_up", button, ...this.at(event) });
      held.clear();
      this.holding = false;
    };
    area.addEventListener("pointerdown", (event) => {
      area.focus();
      area.setPointerCapture(event.pointerId);
      held.add(BUTTONS[event.button]);
      this.holding = true;
      this.act({ op: "button_down", button: BUTTONS[event.button], ...this.at(event) });
      event.preventDefault();
    }, options);
    area.addEventListener("pointermove", (event) => this.act({ op: "move", ...this.at(event) }), options);
    area.addEventListener("pointerup", letGo, options);
    area.addEventListener("pointercancel", letGo, options);
    area.addEventListener("contextmenu", (event) => event.preventDefault(), options);
    area.addEventListener("wheel", (event) => {
      this.act({ op: "scroll", ...this.at(event), dx: Math.round(event.deltaX), dy: Math.round(event.deltaY), unit: "px" });
      event.preventDefault();
    }, { ...options, passive: false });
    area.addEventListener("keydown", (event) => {
      if (event.ctrlKey && event.altKey && event.shiftKey) return area.blur();
      const action = keyAction(event);
      if (action) this.act(action);
      if (!(event.ctrlKey && event.key.toLowerCase() === "v")) event.preventDefault();
    }, options);
    area.addEventListener("paste", (event) => {
      const text = event.clipboardData.getData("text");
      if (text) this.act({ op: "type", text });
    }, options);
  }

  /** Where in the desktop an event is. */
  at(event) {
    const box = this.area.getBoundingClientRect();
    const [width, height] = this.screen();
    const place = (value, from, size, pixels) => Math.max(0, Math.min(pixels - 1, Math.round(((value - from) / size) * pixels)));
    return { x: place(event.clientX, box.left, box.width, width), y: place(event.clientY, box.top, box.height, height) };
  }

  stop() {
    this.heard.abort();
    this.area.classList.remove("mine");
    for (const name of ["tabindex", "role", "aria-label"]) this.area.removeAttribute(name);
  }
}

/** Actions that wait, and the numbered calls that carry them out.
 *
 * `send(seq, actions)` makes one call and gives what it answered; `seen` gets that; `refused` what was no action.
 */
export class Turns {
  constructor({ send, seen, refused, seq = 0 }) {
    Object.assign(this, { send, seen, refused, seq });
    this.waiting = [];
  }

  /** Do this next; moves that nobody needs any more are left out. */
  do(action) {
    if (action.op === "move" && this.waiting.at(-1)?.op === "move") this.waiting.pop();
    this.waiting.push(action);
    this.wake?.();
  }

  /** Carry out what waits, else wait that long for something; return whether anything was done. */
  async turn(waitMs) {
    const actions = this.waiting.splice(0);
    if (actions.length) await this.step(actions);
    else await new Promise((done) => { this.wake = done; setTimeout(done, waitMs); });
    return actions.length > 0;
  }

  /** One call; where its answer is lost it is sent again with its number, so that nothing happens twice. */
  async step(actions) {
    for (let attempt = 1; ; attempt += 1) {
      try {
        const answer = await this.send(this.seq + 1, actions);
        this.seq += 1;
        return await this.seen(answer);
      } catch (error) {
        if (error instanceof Refused && error.code === "invalid_action") return this.refused(error);
        if (error instanceof Refused || attempt === ATTEMPTS) throw error;
      }
    }
  }
}
