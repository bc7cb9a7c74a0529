// The page of a fleet: all hosts, the desktops of all, and a way to the page of each host.

import { access, json, lacks } from "./api.js";
import { make, say } from "./dom.js";
import { FLEET_FIGURES, Hosts } from "./hosts.js";
import { Figures } from "./figures.js";
import { Episodes, Events } from "./lists.js";
import { Run, Runs } from "./runs.js";
import { Shell } from "./shell.js";
import { Tiles } from "./tiles.js";

const MOST = 200;
const find = (id) => document.getElementById(id);

const figures = new Figures(find("figures"), FLEET_FIGURES);
const mays = new Map();
const use = make("a", { class: "button", hidden: true }, "Use a desktop");

async function ask(place) {
  const filter = new URLSearchParams({ q: place.q ?? "", state: place.state ?? "", limit: MOST });
  const [fleet, listed] = await Promise.all([
    json("fleet/hosts"), place.name === "desktops" ? json(`fleet/replicas?${filter}`) : {},
  ]);
  const { hosts, samples, every_s: everyS, read_only: readOnly } = fleet;
  const serving = hosts.filter((host) => host.phase === "serving");
  const costs = hosts.map((host) => host.usd_per_hour).filter((usd) => usd != null);
  const usdPerHour = costs.length ? costs.reduce((sum, usd) => sum + usd, 0) : null;
  const now = { hosts, serving, samples, everyS, usdPerHour, last: samples.at(-1) ?? null, rows: [], ...listed };
  const standing = find("standing");
  const state = serving.length === hosts.length ? "serving" : serving.length ? "booting" : "draining";
  say(standing, `${serving.length} of ${hosts.length} hosts serve`);
  standing.className = `badge is-${state}`;
  document.title = `${serving.length}/${hosts.length} hosts – OSGym fleet`;
  figures.show(now);
  figures.showHistory(samples);
  const free = serving.toSorted((a, b) => b.state.capacity.ready - a.state.capacity.ready)[0];
  if (free && !mays.has(free.at)) mays.set(free.at, await access(free.at).catch(() => null));
  const may = free && mays.get(free.at);
  use.hidden = readOnly || !may || lacks(may, "run") !== null;
  if (may === null) mays.delete(free.at);
  if (free) use.href = `${free.at}ui#/use`;
  return now;
}

new Shell({
  parts: {
    hosts: (main) => new Hosts(main),
    desktops: (main, at, go) => new Tiles(main, go, use),
    episodes: (main) => new Episodes(main, "fleet/episodes"),
    runs: (main) => new Runs(main, "fleet/runs"),
    run: (main, at) => new Run(main, "fleet/runs/episodes", at.id ?? ""),
    events: (main) => new Events(main, "fleet/events"),
  },
  parents: { run: "runs" },
  first: "hosts",
  ask,
}).run();
