// What both pages share, a host's and a fleet's: which part is open is in the address; asking goes on and on.

import { TokenNeeded, keepToken } from "./api.js";
import { say } from "./dom.js";

const EVERY_MS = 1000;
const find = (id) => document.getElementById(id);

/** A page of parts.
 *
 * `parts` by their name make what is shown, from the main element, the address and a way to change it; `parents`
 * says which link is current for parts that have none. `ask` asks for what is shown and gives it back.
 */
export class Shell {
  constructor({ parts, parents, first, ask }) {
    this.parts = parts;
    this.parents = parents;
    this.first = first;
    this.ask = ask;
    this.main = find("main");
    this.search = find("search");
    this.now = this.part = this.place = null;
    addEventListener("hashchange", () => this.open());
    this.search.addEventListener("input", () => this.go({ q: this.search.value }));
    addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.target.matches?.("input")) return;
      this.search.focus();
      event.preventDefault();
    });
  }

  /** Read the address: `#/part/id?name=value`. */
  read() {
    const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
    const [name, id] = path.split("/").map(decodeURIComponent);
    return { name: name || this.first, id, ...Object.fromEntries(new URLSearchParams(query)) };
  }

  /** Change what the address says behind `?`, without a new entry in the browser's history. */
  go(changes) {
    const { name, id, ...query } = { ...this.read(), ...changes };
    const words = new URLSearchParams(Object.entries(query).filter(([, value]) => value));
    const path = [name, id].filter((part) => part != null).map(encodeURIComponent).join("/");
    const hash = `#/${path}${words.size ? `?${words}` : ""}`;
    if (hash === location.hash) return;
    history.replaceState(null, "", hash);
    this.place = this.read();
    this.render();
    this.hurry?.();
  }

  open() {
    const next = this.read();
    if (!Object.hasOwn(this.parts, next.name)) next.name = this.first;
    const same = this.place && this.part && this.place.name === next.name && this.place.id === next.id;
    this.place = next;
    if (!same) {
      this.part?.close();
      this.main.replaceChildren();
      this.part = this.parts[next.name](this.main, next, (changes) => this.go(changes));
      for (const link of document.querySelectorAll("nav a")) {
        const current = link.hash === `#/${this.parents[next.name] ?? next.name}`;
        if (current) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
      }
    }
    if (document.activeElement !== this.search) this.search.value = next.q ?? "";
    this.render();
    this.hurry?.();
  }

  render() {
    if (!this.now || !this.part) return;
    const { q: query, state, step } = this.place;
    this.part.show({ ...this.now, query, state, step });
  }

  async run() {
    this.open();
    for (;;) {
      if (!document.hidden) {
        try {
          this.now = await this.ask(this.place);
          this.render();
          trouble(null);
        } catch (error) {
          if (error instanceof TokenNeeded) {
            await askForToken();
            continue;
          }
          trouble(error);
        }
      }
      await new Promise((done) => { this.hurry = done; setTimeout(done, EVERY_MS); });
    }
  }
}

/** Say what is wrong, once, and what may help. */
function trouble(error) {
  const words = error && `${document.body.dataset.whose} does not answer as it should: ${error.message}. The page goes on trying.`;
  const place = find("trouble");
  say(place, words ?? "");
  place.className = words ? "notice" : "";
}

async function askForToken() {
  const dialog = find("ask");
  dialog.showModal();
  await new Promise((done) => dialog.addEventListener("close", done, { once: true }));
  keepToken(find("token").value.trim());
  find("token").value = "";
}
