// The page of a host: what it shows comes from the API of this host.

import { ROOT, access, json, lacks } from "./api.js";
import { Desktop } from "./desktop.js";
import { make, say } from "./dom.js";
import { EpisodePage } from "./episode.js";
import { FIGURES, Figures } from "./figures.js";
import { HostPage } from "./host.js";
import { Episodes, Events } from "./lists.js";
import { Run, Runs } from "./runs.js";
import { Shell } from "./shell.js";
import { Tiles } from "./tiles.js";
import { Use } from "./use.js";

const HISTORY_MS = 10_000;
const find = (id) => document.getElementById(id);

const figures = new Figures(find("figures"), FIGURES);
let past = { samples: [], last: null, usdPerHour: null, everyS: 10, retired: {} }, historyAt = -Infinity;
let may = null;
const use = make("a", { class: "button", href: "#/use", hidden: true }, "Use a desktop");

async function ask() {
  const [host, pool, rows] = await Promise.all(["v1/host", "v1/pool", "v1/replicas"].map((path) => json(path)));
  if (performance.now() - historyAt > HISTORY_MS) {
    historyAt = performance.now();
    may = await access();
    const { samples, usd_per_hour: usdPerHour, every_s: everyS, retired } = await json("v1/history");
    past = { samples, last: samples.at(-1) ?? null, usdPerHour, everyS, retired };
    figures.showHistory(samples);
  }
  const standing = find("standing"), state = host.draining ? "draining" : "serving";
  say(find("host"), `${host.host_id.slice(0, 12)} · ${host.runtime} · ${host.image.flavor} · ${host.version}${may.token ? ` · ${may.token}: ${may.scope}` : ""}`);
  use.hidden = lacks(may, "run") !== null;
  say(standing, state);
  standing.className = `badge is-${state}`;
  document.title = `${host.capacity.leased}/${host.capacity.max_replicas} leased – OSGym`;
  const now = { host, pool, rows, may, ...past };
  figures.show(now);
  return now;
}

find("fleet").hidden = ROOT.pathname === "/";
new Shell({
  parts: {
    desktops: (main, at, go) => new Tiles(main, go, use),
    desktop: (main, at) => new Desktop(main, at.id),
    episodes: (main) => new Episodes(main, "v1/episodes"),
    episode: (main, at, go) => new EpisodePage(main, at, go),
    runs: (main) => new Runs(main, "v1/runs"),
    run: (main, at) => new Run(main, "v1/runs/episodes", at.id ?? ""),
    host: (main) => new HostPage(main),
    events: (main) => new Events(main, "v1/events"),
    use: (main) => new Use(main, {}),
    copy: (main, at) => new Use(main, { of: at.id }),
    restore: (main, at) => new Use(main, { checkpoint: at.id }),
  },
  parents: { desktop: "desktops", episode: "episodes", run: "runs", use: "desktops", copy: "desktops", restore: "desktops" },
  first: "desktops",
  ask,
}).run();
