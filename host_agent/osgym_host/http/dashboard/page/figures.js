// What the host does, in figures with their last hour.

import { draw, make, say } from "./dom.js";

export const NOT_FINAL = "Frames of the last hour after which the screen still changed, among all";
export const RESTING = "Desktops that nobody calls: they are paused, and the memory of some is in swap. A call wakes them";
export const ACCEPTED = "What an episode of the last hour cost that has a reward and is valid for training; and one that has a reward";

export const FIGURES = [
  ["Leased", (now) => `${now.host.capacity.leased}`, (now) => ` of ${now.host.capacity.max_replicas}`, (s) => s.leased],
  ["Ready", (now) => `${now.host.capacity.ready}`, (now) => ` + ${now.host.capacity.starting} starting`, (s) => s.ready],
  ["At rest", (now) => atRest(now.host.capacity), () => "", null, RESTING],
  ["Waiting clients", (now) => `${now.host.capacity.waiting}`, (now) => (now.host.capacity.waiting ? blocked(now.pool) : ""), (s) => s.waiting],
  ["Steps / s", (now) => number(now.last?.steps_per_s), () => "", (s) => s.steps_per_s],
  ["Step p50 / p95", (now) => ms(now.last?.step_ms.p50), (now) => ` / ${ms(now.last?.step_ms.p95)}`, (s) => s.step_ms.p95],
  ["Create p50 / p95", (now) => ms(now.last?.open_ms.p50), (now) => ` / ${ms(now.last?.open_ms.p95)}`, (s) => s.open_ms.p95],
  ["Not final, 1 h", (now) => share(now.samples), () => "", (s) => s.not_final, NOT_FINAL],
  ["Load", (now) => now.host.load.load1.toFixed(1), (now) => ` on ${now.host.load.cpu_count} cores`, (s) => s.load1],
  ["RAM free", (now) => gib(now.host.load.ram_available_mib), (now) => ` of ${(now.host.load.ram_total_mib / 1024).toFixed(0)}`, (s) => s.ram_used_mib],
  ["Disk free", (now) => gib(now.host.load.disk_free_mib), () => "", null],
  ["USD per hour", (now) => usd(now.usdPerHour), () => "", null],
  ["USD accepted / scored", (now) => usd(per("accepted", now)), (now) => ` / ${usd(per("scored", now))}`, (s) => s.accepted ?? 0, ACCEPTED],
];

export class Figures {
  /** `figures`: of each its name, its value, what stands behind it, and what of a sample its line is made of. */
  constructor(list, figures) {
    this.figures = figures;
    this.cells = figures.map(([name, , , , about]) => {
      const value = document.createTextNode("–");
      const rest = make("small");
      const spark = draw("svg", { class: "spark", viewBox: "0 0 100 22", preserveAspectRatio: "none", "aria-hidden": "true" });
      list.append(make("div", {}, make("dt", { title: about ?? name }, name), make("dd", {}, value, rest), spark));
      return { value, rest, spark };
    });
  }

  show(now) {
    this.figures.forEach(([, value, rest], index) => {
      say(this.cells[index].value, value(now));
      say(this.cells[index].rest, rest(now));
      this.cells[index].rest.parentElement.title = this.cells[index].rest.parentElement.textContent;
    });
  }

  showHistory(samples) {
    this.figures.forEach(([, , , read], index) => {
      if (read) this.cells[index].spark.replaceChildren(...line(samples.map(read)));
    });
  }
}

/** A line of values; where there was nothing, it is broken. */
function line(values) {
  const highest = Math.max(...values.map((v) => v ?? 0), 1e-9);
  const runs = [[]];
  values.forEach((value, index) => {
    if (value == null) runs.push([]);
    else runs.at(-1).push(`${(index * 100) / Math.max(1, values.length - 1)},${20 - (value / highest) * 18}`);
  });
  const style = { fill: "none", stroke: "currentColor", "stroke-width": 1.5, "vector-effect": "non-scaling-stroke" };
  return runs.filter((run) => run.length > 1).map((run) => draw("polyline", { points: run.join(" "), ...style }));
}

export const number = (value) => (value == null ? "–" : value < 10 ? value.toFixed(1) : value.toFixed(0));
export const ms = (value) => (value == null ? "–" : value < 1000 ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(1)} s`);
export const gib = (mib) => (mib == null ? "–" : `${(mib / 1024).toFixed(1)} GiB`);
const blocked = (pool) => (pool.blocked && pool.blocked !== "nothing" ? ` ${pool.blocked.replaceAll("_", " ")}` : "");

/** How many desktops rest, and how many of them have their memory in swap. */
export const atRest = ({ paused = 0, reclaimed = 0 }) => `${paused + reclaimed}${reclaimed ? `, ${reclaimed} in swap` : ""}`;

/** The memory of a desktop: what it occupied when it was moved to swap, or what was measured while it was awake. */
export function memory({ rest, resting_mib: resting, pss_mib: awake }) {
  const mib = (rest === "reclaimed" ? resting : null) ?? awake;
  return mib == null ? null : `${Math.round(mib)} MiB`;
}

export const usd = (value) => (value == null ? "–" : value.toFixed(value < 0.1 ? 4 : 2));

/** How many episodes the samples have that are `scored`, or `accepted`: scored and valid for training. */
export const counted = (which, samples) => samples.reduce((sum, s) => sum + (s[which] ?? 0), 0);

/** What one of them cost, over the samples that there are. */
export function per(which, { samples, usdPerHour, everyS }) {
  const count = counted(which, samples);
  return usdPerHour == null || count === 0 ? null : (usdPerHour * ((samples.length * everyS) / 3600)) / count;
}

export function share(samples) {
  const steps = samples.reduce((sum, s) => sum + s.steps, 0);
  const late = samples.reduce((sum, s) => sum + s.not_final, 0);
  return steps === 0 ? "–" : `${((100 * late) / steps).toFixed(1)} %`;
}
