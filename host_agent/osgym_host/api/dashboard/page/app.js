// The page: which part of it is open is in the address, what it shows comes from the API of this host.

import { TokenNeeded, json, keepToken } from "./api.js";
import { Desktop } from "./desktop.js";
import { say } from "./dom.js";
import { EpisodePage } from "./episode.js";
import { Figures } from "./figures.js";
import { Episodes, Events } from "./lists.js";
import { Tiles } from "./tiles.js";
import { Use } from "./use.js";

const EVERY_MS = 1000;
const HISTORY_MS = 10_000;
const find = (id) => document.getElementById(id);

const main = find("main"), search = find("search");
const figures = new Figures(find("figures"));
const now = { host: null, pool: null, rows: [], samples: [], last: null, usdPerHour: null, everyS: 10 };
let page = null, place = null, historyAt = -Infinity;

/** Read the address: `#/page/id?name=value`. */
function readPlace() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, id] = path.split("/").map(decodeURIComponent);
  return { name: name || "desktops", id, ...Object.fromEntries(new URLSearchParams(query)) };
}

/** Change what the address says behind `?`, without a new entry in the browser's history. */
function go(changes) {
  const { name, id, ...query } = { ...readPlace(), ...changes };
  const words = new URLSearchParams(Object.entries(query).filter(([, value]) => value));
  const path = [name, id].filter((part) => part != null).map(encodeURIComponent).join("/");
  const hash = `#/${path}${words.size ? `?${words}` : ""}`;
  if (hash === location.hash) return;
  history.replaceState(null, "", hash);
  place = readPlace();
  render();
}

const PAGES = {
  desktops: () => new Tiles(main, go),
  desktop: (at) => new Desktop(main, at.id),
  episodes: () => new Episodes(main),
  episode: (at) => new EpisodePage(main, at.id, go),
  events: () => new Events(main),
  use: () => new Use(main),
};
const PARENTS = { desktop: "desktops", episode: "episodes", use: "desktops" };

function open() {
  const next = readPlace();
  if (!(next.name in PAGES)) next.name = "desktops";
  const same = place && page && place.name === next.name && place.id === next.id;
  place = next;
  if (!same) {
    page?.close();
    main.replaceChildren();
    page = PAGES[place.name](place);
    for (const link of document.querySelectorAll("nav a")) {
      const current = link.hash === `#/${PARENTS[place.name] ?? place.name}`;
      if (current) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }
  if (document.activeElement !== search) search.value = place.q ?? "";
  render();
}

function render() {
  if (!now.host || !page) return;
  page.show({ ...now, query: place.q, state: place.state, step: place.step });
}

async function refresh() {
  [now.host, now.pool, now.rows] = await Promise.all(["/v1/host", "/v1/pool", "/v1/replicas"].map((path) => json(path)));
  if (performance.now() - historyAt > HISTORY_MS) {
    historyAt = performance.now();
    ({ samples: now.samples, usd_per_hour: now.usdPerHour, every_s: now.everyS } = await json("/v1/history"));
    now.last = now.samples.at(-1) ?? null;
    figures.showHistory(now.samples);
  }
  const standing = find("standing");
  const state = now.host.draining ? "draining" : "serving";
  say(find("host"), `${now.host.host_id.slice(0, 12)} · ${now.host.runtime} · ${now.host.image.flavor} · ${now.host.version}`);
  say(standing, state);
  standing.className = `badge is-${state}`;
  document.title = `${now.host.capacity.leased}/${now.host.capacity.max_replicas} leased – OSGym`;
  figures.show(now);
  render();
}

/** Say what is wrong, once, and what may help. */
function trouble(error) {
  const words = error && `This host does not answer as it should: ${error.message}. The page goes on trying.`;
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

async function run() {
  for (;;) {
    if (!document.hidden) {
      try {
        await refresh();
        trouble(null);
      } catch (error) {
        if (error instanceof TokenNeeded) {
          await askForToken();
          continue;
        }
        trouble(error);
      }
    }
    await new Promise((done) => setTimeout(done, EVERY_MS));
  }
}

addEventListener("hashchange", open);
search.addEventListener("input", () => go({ q: search.value }));
addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.matches?.("input")) return;
  search.focus();
  event.preventDefault();
});
open();
run();
