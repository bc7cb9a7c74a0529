// Episodes and events as tables: newest first, bounded, filtered by the search.

import { badge, clock, make, say, seconds, shown } from "./dom.js";
import { json } from "./api.js";

const MAX_EVENTS = 500;
const ROWS_AT_ONCE = 100; // laying out 500 rows keeps a page busy for 150 ms
const NUMBERS = new Set(["Steps", "Reward", "Took"]);
const TONES = { success: "good", zero: "", failed: "bad" };

/** A table with a title; `numbers` are the columns that stand to the right. */
export class Table {
  constructor(main, title, columns, numbers = NUMBERS) {
    this.body = make("tbody");
    this.summary = make("p", { class: "faint" });
    this.wanted = [];
    this.most = ROWS_AT_ONCE;
    this.end = make("div", {});
    this.seen = new IntersectionObserver((seen) => seen.at(-1).isIntersecting && this.addMore());
    const head = make("tr", {}, ...columns.map((name) => make("th", { scope: "col", class: numbers.has(name) && "number" }, name)));
    main.append(make("h1", {}, title), this.summary,
      make("div", { class: "scroll" }, make("table", {}, make("thead", {}, head), this.body)), this.end);
  }

  /** Show the rows that have all words of the query; those far down are made only when one scrolls there. */
  fill(rows, query) {
    const words = (query ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    this.wanted = rows.filter(({ text }) => words.every((word) => text.toLowerCase().includes(word)));
    this.body.replaceChildren(...this.wanted.slice(0, this.most).map(tableRow));
    this.watchEnd();
  }

  addMore() {
    const shown = this.body.children.length;
    if (shown >= this.wanted.length) return;
    this.most = shown + ROWS_AT_ONCE;
    this.body.append(...this.wanted.slice(shown, this.most).map(tableRow));
    this.watchEnd();
  }

  /** Observe the end anew, since an observer does not report again while the end stays in view. */
  watchEnd() {
    this.seen.unobserve(this.end);
    this.seen.observe(this.end);
  }
}

const tableRow = ({ cells }) => make("tr", {}, ...cells());

export class Episodes {
  constructor(main, path) {
    this.path = path;
    this.table = new Table(main, "Episodes", ["State", "Episode", "Task", "Steps", "Reward", "Ended", "Began", "Took"]);
    this.timer = setInterval(() => this.load(), 2000);
    this.rows = [];
    this.load();
  }

  async load() {
    if (document.hidden) return;
    try {
      this.rows = await json(`${this.path}?limit=300`);
      this.render();
    } catch {
      // The page says above that the host does not answer.
    }
  }

  show({ query }) {
    if (this.query === query) return;
    this.query = query;
    this.render();
  }

  render() {
    const scored = this.rows.filter((row) => row.reward != null);
    const solved = scored.filter((row) => row.reward >= 1).length;
    const lost = this.rows.filter((row) => row.error).length;
    say(this.table.summary, `The latest ${this.rows.length}: ${scored.length} scored, ${solved} with reward 1, ${lost} lost.`);
    this.table.fill(this.rows.map(episodeRow), this.query);
  }

  close() {
    clearInterval(this.timer);
  }
}

/** The page of the host that a row is of; empty on that page itself. */
export const pageOf = (row) => (row.at ? `${row.at}ui` : "");
const ofHost = (row) => (row.host ? `${shown(row.host.slice(0, 21))} ` : null);

function episodeRow(row) {
  const id = encodeURIComponent(row.episode_id);
  const outcome = row.error ?? row.evaluation_error;
  const tone = outcome ? "failed" : row.reward >= 1 ? "success" : "zero";
  const ended = [row.termination_reason, outcome && `${outcome.code}: ${outcome.message}`].filter(Boolean).join(" – ");
  const text = [row.host, row.episode_id, row.replica_id, row.task_id, row.state, ended].join(" ");
  const took = (row.ended_at ?? Date.now() / 1000) - row.began_at;
  return { text, cells: () => [
    make("td", {}, badge(row.state)),
    make("td", {}, make("a", { href: `${pageOf(row)}#/episode/${id}` }, row.episode_id), " ",
      make("a", { class: "faint", href: `${pageOf(row)}#/desktop/${encodeURIComponent(row.replica_id)}` }, ofHost(row), row.replica_id)),
    make("td", { class: "long" }, shown(row.task_id ?? "")),
    make("td", { class: "number" }, String(row.step)),
    make("td", { class: `number ${TONES[tone]}` }, row.reward == null ? (row.evaluated ? "none" : "") : String(row.reward)),
    make("td", { class: `long ${outcome ? "bad" : ""}` }, shown(ended)),
    make("td", {}, clock(row.began_at)),
    make("td", { class: "number" }, seconds(took)),
  ] };
}

export class Events {
  constructor(main, path) {
    this.path = path;
    this.table = new Table(main, "Events", ["Time", "What", "Of", "State", "Details"], new Set());
    this.rows = [];
    this.stop = new AbortController();
    this.follow();
  }

  /** Ask for what is newer, again and again; each question waits until there is something. */
  async follow() {
    let after = 0;
    while (!this.stop.signal.aborted) {
      try {
        const { events, last_id: last } = await json(`${this.path}?after=${after}&wait_s=20`, { signal: this.stop.signal });
        if (last < after) after = 0;
        else if (events.length) {
          after = events.at(-1).id;
          this.rows = [...events.reverse().map(eventRow), ...this.rows].sort((a, b) => b.time - a.time).slice(0, MAX_EVENTS);
          this.table.fill(this.rows, this.query);
          say(this.table.summary, `The latest ${this.rows.length}, as they come.`);
        }
      } catch {
        await new Promise((done) => setTimeout(done, 2000));
      }
      while (document.hidden && !this.stop.signal.aborted) await new Promise((done) => setTimeout(done, 500));
    }
  }

  show({ query }) {
    if (this.query === query) return;
    this.query = query;
    this.table.fill(this.rows, query);
  }

  close() {
    this.stop.abort();
  }
}

function eventRow(event) {
  const { id, time, kind, replica_id: replica, episode_id: episode, state, at, host, ...rest } = event;
  const details = Object.entries(rest).filter(([, v]) => v != null).map(([k, v]) => `${k}: ${typeof v === "string" ? v : JSON.stringify(v)}`);
  const text = [host, kind, replica, episode, state, ...details].join(" ");
  const links = () => [
    ...(host ? [make("a", { class: "faint", href: pageOf(event) }, shown(host.slice(0, 21))), " "] : []),
    ...(replica ? [make("a", { href: `${pageOf(event)}#/desktop/${encodeURIComponent(replica)}` }, replica), " "] : []),
    ...(episode ? [make("a", { href: `${pageOf(event)}#/episode/${encodeURIComponent(episode)}` }, episode)] : []),
  ];
  void [id, at];
  return { text, time, cells: () => [
    make("td", {}, clock(time)), make("td", {}, kind), make("td", {}, ...links()),
    make("td", {}, state ? badge(state) : ""), make("td", { class: "long" }, shown(details.join(", "))),
  ] };
}
