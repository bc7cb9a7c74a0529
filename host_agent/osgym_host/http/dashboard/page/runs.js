// Runs by the name that their clients gave them: a list, and one run with its tasks, attempts and curve.

import { json } from "./api.js";
import { clock, draw, facts, make, say, shown } from "./dom.js";
import { Table, pageOf } from "./lists.js";

const EVERY_MS = 3000;
const SHOWN_ATTEMPTS = 64;
const NUMBERS = new Set(["Episodes", "Under way", "Tasks", "Steps", "Scored", "Mean reward", "Solved", "Lost"]);
const mean = (rewards) => (rewards.length ? rewards.reduce((sum, r) => sum + r, 0) / rewards.length : null);
const when = (epochS) => new Date(epochS * 1000).toLocaleString([], { dateStyle: "short", timeStyle: "short", hour12: false });
const figure = (value) => (value == null ? "–" : value.toFixed(value === 0 || value === 1 ? 0 : 2));

/** What both have: a path that is asked again and again while the page is open and seen. */
class Asked {
  constructor(path) {
    this.path = path;
    this.timer = setInterval(() => this.load(), EVERY_MS);
    this.load();
  }

  async load() {
    if (document.hidden) return;
    try {
      const rows = await json(this.path), said = JSON.stringify(rows);
      if (said === this.said) return;
      this.said = said;
      this.rows = rows;
      this.render();
    } catch {
      // The page says above that nobody answers.
    }
  }

  show({ query }) {
    if (this.query === query) return;
    this.query = query;
    if (this.rows) this.render();
  }

  close() {
    clearInterval(this.timer);
  }
}

export class Runs extends Asked {
  constructor(main, path) {
    super(path);
    this.table = new Table(main, "Runs", ["Run", ...NUMBERS, "Began", "Last"], NUMBERS);
  }

  render() {
    const none = 'No run yet: name one with client.run(…, run="grpo-7").';
    say(this.table.summary, this.rows.length ? `${this.rows.length} runs of those that clients named.` : none);
    this.table.fill(this.rows.map(runRow), this.query);
  }
}

function runRow(row) {
  const numbers = [row.episodes, row.active, row.tasks, row.steps, row.scored, figure(row.mean_reward), row.solved, row.lost];
  return { text: row.run, cells: () => [
    make("td", { class: "long" }, make("a", { href: `#/run/${encodeURIComponent(row.run)}` }, shown(row.run))),
    ...numbers.map((value) => make("td", { class: "number" }, String(value))),
    make("td", {}, when(row.began_at)), make("td", {}, when(row.last_at)),
  ] };
}

export class Run extends Asked {
  constructor(main, path, name) {
    super(`${path}?run=${encodeURIComponent(name)}`);
    this.about = make("div");
    this.curve = draw("svg", { class: "curve", viewBox: "0 0 1000 220", role: "img" });
    this.caption = make("p", { class: "faint" });
    this.causes = make("div");
    main.append(make("p", {}, make("a", { href: "#/runs" }, "← All runs")), make("h1", {}, "Run ", shown(name)),
      make("div", { class: "look" }, make("div", {}, this.curve, this.caption), make("aside", {}, this.about, this.causes)));
    this.table = new Table(main, "Tasks and their attempts", ["Task", "Attempts", "Mean reward", "In the order of their ends"],
      new Set(["Attempts", "Mean reward"]));
  }

  render() {
    const { rows } = this;
    const ended = rows.filter((row) => row.ended_at != null);
    const rewards = ended.map((row) => row.reward).filter((reward) => reward != null);
    const lost = ended.filter((row) => row.error);
    const steps = rows.reduce((sum, row) => sum + row.steps, 0);
    this.about.replaceChildren(facts([
      ["Episodes", `${ended.length} ended, ${rows.length - ended.length} under way`],
      ["Scored", `${rewards.length}, ${rewards.filter((reward) => reward >= 1).length} with reward 1`],
      ["Mean reward", figure(mean(rewards))],
      ["Steps", `${steps}, ${rows.length ? (steps / rows.length).toFixed(1) : 0} an episode`],
    ]));
    const counts = {};
    for (const { error } of lost) counts[error] = (counts[error] ?? 0) + 1;
    this.causes.replaceChildren(...(lost.length ? [make("h2", {}, "Without a reward, by cause"),
      facts(Object.entries(counts).sort((a, b) => b[1] - a[1]).map(([code, count]) => [code, String(count)]))] : []));
    this.drawCurve(rewards);
    this.fillTasks();
  }

  /** The mean reward over a window of episodes, in the order of their ends. */
  drawCurve(rewards) {
    const window = Math.max(1, Math.min(50, Math.ceil(rewards.length / 8)));
    const points = [];
    let sum = 0;
    rewards.forEach((reward, index) => {
      sum += Math.max(0, Math.min(1, reward)) - (index >= window ? Math.max(0, Math.min(1, rewards[index - window])) : 0);
      const x = 40 + (index * 950) / Math.max(1, rewards.length - 1);
      points.push(`${x.toFixed(1)},${(200 - (180 * sum) / Math.min(window, index + 1)).toFixed(1)}`);
    });
    const lines = [0, 0.5, 1].flatMap((value) => [
      draw("line", { x1: 40, x2: 990, y1: 200 - 180 * value, y2: 200 - 180 * value, class: "grid" }),
      draw("text", { x: 32, y: 205 - 180 * value, "text-anchor": "end" }, String(value)),
    ]);
    this.curve.replaceChildren(...lines, draw("polyline", { points: points.join(" ") }));
    this.curve.setAttribute("aria-label", `Mean reward, ${figure(mean(rewards.slice(-window)))} at the end`);
    say(this.caption, rewards.length ? `Mean reward of the last ${window} at a time, over ${rewards.length} episodes.` : "No reward yet.");
  }

  fillTasks() {
    const tasks = new Map();
    for (const row of this.rows) {
      const name = row.task_id ?? "no task";
      if (!tasks.has(name)) tasks.set(name, []);
      tasks.get(name).push(row);
    }
    const found = [...tasks].sort(([a], [b]) => a.localeCompare(b, undefined, { numeric: true }));
    say(this.table.summary, `${found.length} tasks. A square is an episode: the fuller, the higher its reward; a cross has none.`);
    this.table.fill(found.map(([name, rows]) => taskRow(name, rows)), this.query);
  }
}

function taskRow(name, rows) {
  const rewards = rows.map((row) => row.reward).filter((reward) => reward != null);
  const left = rows.length - SHOWN_ATTEMPTS;
  return { text: name, cells: () => [
    make("td", { class: "long" }, shown(name)),
    make("td", { class: "number" }, String(rows.length)),
    make("td", { class: "number" }, figure(mean(rewards))),
    make("td", {}, left > 0 ? make("span", { class: "faint" }, `${left} before, `) : null,
      make("span", { class: "attempts" }, ...rows.slice(-SHOWN_ATTEMPTS).map(attempt))),
  ] };
}

function attempt(row) {
  const said = row.ended_at == null ? "under way" : row.reward == null ? row.error ?? "no reward" : `reward ${figure(row.reward)}`;
  const full = row.reward == null ? 0 : Math.max(0, Math.min(1, row.reward));
  const kind = row.ended_at == null ? "attempt open" : row.reward == null ? "attempt none" : "attempt";
  const words = shown(`${said}, ${row.steps} steps, ${clock(row.began_at)}`);
  const box = draw("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" },
    row.reward == null && row.ended_at != null ? draw("path", { d: "M2 2 8 8M8 2 2 8" }) : draw("rect", { y: 10 - 10 * full, width: 10, height: 10 * full }));
  return make("a", { class: kind, href: `${pageOf(row)}#/episode/${encodeURIComponent(row.episode_id)}`, title: words, "aria-label": words }, box);
}
