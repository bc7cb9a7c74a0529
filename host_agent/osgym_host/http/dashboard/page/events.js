// The events of one desktop, as a short list beside it.

import { json } from "./api.js";
import { clock, make, say, shown } from "./dom.js";

const EVERY_MS = 2000;
const KEPT = 100;

export class OwnEvents {
  constructor(replica) {
    this.replica = replica;
    this.after = 0;
    this.list = make("ol", { class: "events", "aria-label": "Events of this desktop" });
    this.none = make("p", { class: "faint" }, "None yet.");
    this.element = make("div", {}, make("h2", {}, "Events"), this.none, this.list);
    this.stop = new AbortController();
    this.follow();
  }

  async follow() {
    const path = `v1/events?replica=${encodeURIComponent(this.replica)}`;
    while (!this.stop.signal.aborted) {
      if (!document.hidden) {
        try {
          const { events, last_id: last } = await json(`${path}&after=${this.after}`, { signal: this.stop.signal });
          if (last < this.after) this.list.replaceChildren(); // another agent counts from 1
          this.after = last;
          this.add(events.filter((event) => event.replica_id === this.replica));
        } catch {
          // The page says above that nobody answers.
        }
      }
      await new Promise((done) => setTimeout(done, EVERY_MS));
    }
  }

  add(events) {
    this.list.prepend(...events.reverse().map((event) => {
      const { id, time, kind, replica_id: replica, generation, state, ...rest } = event;
      const details = Object.entries(rest).filter(([, v]) => v != null).map(([k, v]) => `${k.replaceAll("_", " ")} ${typeof v === "string" ? v : JSON.stringify(v)}`);
      void [id, replica, generation];
      return make("li", {}, make("time", { class: "faint" }, clock(time)), make("span", {}, shown([kind, state].filter(Boolean).join(" ")),
        details.length ? make("span", { class: "faint" }, ` ${shown(details.join(", "))}`) : null));
    }));
    while (this.list.children.length > KEPT) this.list.lastChild.remove();
    this.none.hidden = this.list.children.length > 0;
    say(this.none, this.none.hidden ? "" : "None yet.");
  }

  close() {
    this.stop.abort();
  }
}
