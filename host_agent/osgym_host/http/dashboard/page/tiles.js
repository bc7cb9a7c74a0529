// Desktops as tiles, of a host or of a fleet. Only what is seen and leased is looked at, and only when it may have changed.

import { Picture } from "./api.js";
import { badge, make, say, seconds, shown } from "./dom.js";
import { memory } from "./figures.js";

const WIDTH = 320;
const AT_ONCE = 4;
const SOONEST_MS = 1000;
const ANYWAY_MS = 5000;
const RESTS = new Set(["paused", "reclaimed"]);
const STATES = ["leased", "ready", "booting", "creating", "retiring"];

export class Tiles {
  constructor(main, go, ...beside) {
    this.go = go;
    this.tiles = new Map();
    this.asked = 0;
    this.rows = [];
    this.filters = make("div", { class: "filters", role: "group", "aria-label": "Show only" });
    this.list = make("ul", { class: "tiles", "aria-label": "Desktops" });
    this.nothing = make("p", { class: "faint" });
    this.seen = new IntersectionObserver((entries) => {
      for (const entry of entries) this.tiles.get(entry.target.dataset.id)?.see(entry.isIntersecting);
    }, { rootMargin: "100px" });
    main.append(make("h1", {}, "Desktops ", ...beside), this.filters, this.nothing, this.list);
    this.timer = setInterval(() => this.look(), 250);
  }

  /** `counts` and `found`: by state and in all, where `rows` are not all. */
  show({ rows, query, state, counts, found }) {
    this.rows = rows;
    this.showFilters(state, counts ?? count(rows));
    const wanted = rows.filter((row) => (!state || row.state === state) && matches(row, query)).sort(order);
    const names = new Set(wanted.map(keyOf));
    for (const [id, tile] of this.tiles) if (!names.has(id)) this.drop(id, tile);
    wanted.forEach((row, index) => {
      let tile = this.tiles.get(keyOf(row));
      if (!tile) {
        tile = new Tile(row);
        this.tiles.set(keyOf(row), tile);
        this.seen.observe(tile.element);
      }
      tile.show(row);
      if (this.list.children[index] !== tile.element) this.list.insertBefore(tile.element, this.list.children[index] ?? null);
    });
    const more = (found ?? 0) - wanted.length;
    this.nothing.hidden = wanted.length > 0 && more <= 0;
    const none = Object.keys(counts ?? rows).length ? "No desktop is like that." : "No desktops yet.";
    say(this.nothing, wanted.length ? `The first ${wanted.length} of ${found}: search for the others.` : none);
  }

  showFilters(chosen, counts) {
    const all = Object.values(counts).reduce((sum, n) => sum + n, 0);
    const wanted = [["", `all ${all}`], ...STATES.filter((s) => counts[s] || s === chosen).map((s) => [s, `${s} ${counts[s] ?? 0}`])];
    const key = JSON.stringify([wanted, chosen]);
    if (this.key === key) return;
    this.key = key;
    this.filters.replaceChildren(...wanted.map(([state, words]) => make(
      "button", { type: "button", "aria-pressed": String(state === (chosen ?? "")), onclick: () => this.go({ state }) }, words,
    )));
  }

  look() {
    if (document.hidden) return;
    const now = performance.now();
    const due = [...this.tiles.values()].filter((tile) => tile.due(now)).sort((a, b) => a.at - b.at);
    for (const tile of due.slice(0, AT_ONCE - this.asked)) {
      this.asked += 1;
      tile.look(now).finally(() => { this.asked -= 1; });
    }
  }

  drop(id, tile) {
    this.seen.unobserve(tile.element);
    tile.close();
    this.tiles.delete(id);
  }

  close() {
    clearInterval(this.timer);
    this.seen.disconnect();
    for (const [id, tile] of this.tiles) this.drop(id, tile);
  }
}

class Tile {
  constructor(row) {
    this.at = -Infinity;
    this.busy = this.visible = false;
    this.moment = this.lookedMoment = null;
    this.image = make("img", { alt: "", width: 320, height: 180, hidden: true });
    this.picture = new Picture(this.image);
    this.empty = make("span", { class: "empty" });
    this.state = make("span");
    this.task = make("span");
    this.step = make("span", { class: "right" });
    this.age = make("span", { class: "right" });
    this.link = make("a", { class: "tile", href: `${row.at ? `${row.at}ui` : ""}#/desktop/${encodeURIComponent(row.replica_id)}` },
      make("span", { class: "shot" }, this.image, this.empty),
      make("span", { class: "words" }, this.state, this.step, this.task, this.age));
    this.element = make("li", { "data-id": keyOf(row) }, this.link);
  }

  show(row) {
    if (this.row?.state !== row.state) this.state.replaceChildren(badge(row.state, `${shown(row.replica_id)} ${row.state}`));
    this.row = row;
    this.moment = `${row.generation}/${row.episode_id}/${row.step}`;
    this.link.classList.toggle("plain", row.state !== "leased");
    if (row.state !== "leased") this.forget();
    say(this.empty, this.image.hidden ? "…" : "");
    say(this.task, shown(row.task_id ?? (row.episode_id ? "no task" : row.state === "leased" ? "being set up" : row.reason ?? "")));
    const reward = row.reward == null ? "" : ` · reward ${Number(row.reward.toFixed(2))}`;
    say(this.step, row.step == null ? `for ${seconds(row.age_s)}` : `step ${row.step}${reward}`);
    this.step.classList.toggle("good", row.reward > 0);
    this.link.classList.toggle("rests", RESTS.has(row.rest));
    const idle = row.idle_s > 5 ? `idle ${seconds(row.idle_s)}` : shown((row.host ?? "").slice(0, 21));
    say(this.age, RESTS.has(row.rest) ? `${row.rest}, ${memory(row) ?? "memory not measured"}` : idle);
    const label = [row.host && `host ${shown(row.host)}`, `replica ${row.replica_id}`, row.state, row.task_id && `task ${shown(row.task_id)}`, row.step != null && `step ${row.step}`, RESTS.has(row.rest) && row.rest, row.reward != null && `reward ${row.reward}`];
    this.link.setAttribute("aria-label", label.filter(Boolean).join(", "));
  }

  see(visible) {
    this.visible = visible;
  }

  due(now) {
    if (this.busy || !this.visible || this.row?.state !== "leased") return false;
    // A look would wake a desktop at rest, whose screen stands still.
    if (RESTS.has(this.row.rest) && this.moment === this.lookedMoment) return false;
    const waited = now - this.at;
    return waited >= ANYWAY_MS || (waited >= SOONEST_MS && this.moment !== this.lookedMoment);
  }

  async look(now) {
    this.busy = true;
    this.at = now;
    this.lookedMoment = this.moment;
    try {
      await this.picture.show(`${this.row.at ?? ""}v1/replicas/${encodeURIComponent(this.row.replica_id)}/screenshot?width=${WIDTH}`);
      this.image.hidden = this.row.state !== "leased";
      if (!this.image.hidden) say(this.empty, "");
    } catch {
      // It may have ended meanwhile; the next list says so.
    } finally {
      this.busy = false;
    }
  }

  forget() {
    if (this.image.hidden) return;
    this.image.hidden = true;
    this.picture.close();
    this.lookedMoment = null;
  }

  close() {
    this.picture.close();
    this.element.remove();
  }
}

/** A replica's name, which is one in the whole fleet. */
const keyOf = (row) => `${row.at ?? ""}${row.replica_id}`;

function count(rows) {
  const counts = {};
  for (const { state } of rows) counts[state] = (counts[state] ?? 0) + 1;
  return counts;
}

function order(a, b) {
  const rank = (row) => ["leased", "booting", "creating", "ready", "retiring"].indexOf(row.state);
  return rank(a) - rank(b) || (a.at ?? "").localeCompare(b.at ?? "", undefined, { numeric: true }) || a.replica_id.localeCompare(b.replica_id, undefined, { numeric: true });
}

function matches(row, query) {
  if (!query) return true;
  const text = [row.replica_id, row.state, row.reason, row.rest, row.task_id, row.episode_id, row.host, row.at].join(" ").toLowerCase();
  return query.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}
