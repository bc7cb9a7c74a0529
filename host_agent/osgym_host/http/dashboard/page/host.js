// The host itself: what it has room for and why not for more, why desktops ended, what episodes cost.

import { json } from "./api.js";
import { draw, facts, make, say, shown } from "./dom.js";
import { counted, gib, per, usd } from "./figures.js";

const EVERY_MS = 5000;
const NUMBERS = new Set(["Left", "Kept free", "One desktop takes", "Room for"]);
const PLANNED = new Set(["closed", "suspended", "lease_expired", "made_way", "client_gone", "surplus", "shutdown", "host_restarted", "host_going"]);
const whole = (value) => (Number.isFinite(value) ? String(Math.max(0, Math.floor(value))) : "any");

export class HostPage {
  constructor(main) {
    this.limit = make("p");
    this.room = make("tbody");
    this.images = make("div");
    this.ended = make("div");
    this.lost = make("div");
    this.cost = make("div");
    const head = ["", "In use", ...NUMBERS].map((name) => make("th", { scope: "col", class: NUMBERS.has(name) && "number" }, name || make("span", { class: "hidden" }, "Resource")));
    const part = (title, element) => make("section", {}, make("h2", {}, title), element);
    main.append(make("h1", {}, "This host"), this.limit,
      make("div", { class: "scroll" }, make("table", { class: "room" }, make("thead", {}, make("tr", {}, ...head)), this.room)),
      make("div", { class: "parts-of-host" }, part("Golden images", this.images), part("Why desktops ended", this.ended), part("Episodes without a reward, by cause", this.lost), part("What episodes cost, last hour", this.cost)));
    this.timer = setInterval(() => this.load(), EVERY_MS);
    this.load();
  }

  async load() {
    if (document.hidden) return;
    try {
      const rows = await json("v1/episodes?limit=1000");
      const counts = {};
      for (const { error, evaluation_error: unscored } of rows) {
        const code = (error ?? unscored)?.code;
        if (code) counts[code] = (counts[code] ?? 0) + 1;
      }
      this.lost.replaceChildren(tally(counts, () => "bad", `Of the latest ${rows.length} episodes none was lost.`));
    } catch {
      // The page says above that the host does not answer.
    }
  }

  show({ host, pool, samples, usdPerHour, everyS, retired }) {
    this.showRoom(host, pool);
    this.images.replaceChildren(imageTable(host.images ?? []));
    this.ended.replaceChildren(tally(retired ?? {}, (why) => (PLANNED.has(why) ? "" : "bad"), "None has ended yet."));
    const now = { samples, usdPerHour, everyS };
    const price = (which) => (usdPerHour == null ? `${counted(which, samples)}` : `${counted(which, samples)}, USD ${usd(per(which, now))} each`);
    this.cost.replaceChildren(facts([
      ["The host", usdPerHour == null ? "not known: the setting usd_per_hour says it" : `USD ${usd(usdPerHour)} per hour`],
      ["Scored", price("scored")], ["Accepted", price("accepted")],
    ]), make("p", { class: "faint" }, "Scored: the check gave a reward, 0 too. Accepted: scored, and valid for training, ",
      "so no person acted in it and nothing of the host spoilt it. The price is the host's, all desktops that stood idle included."));
  }

  showRoom({ load, capacity }, { admission, replica_ram_mib: ramEach, ...pool }) {
    if (!admission) return;
    const { cores, existing } = admission;
    const ramUsed = load.ram_total_mib - load.ram_available_mib;
    const rows = [
      ["max_replicas", "Desktops", existing, admission.max_replicas, 0, 1, String, existing / admission.max_replicas],
      ["ram", "RAM", ramUsed, load.ram_total_mib, admission.ram_reserve_mib, ramEach, gib, ramUsed / load.ram_total_mib],
      ["cpu", "CPU", existing * admission.cpu_per_replica, cores, 0, admission.cpu_per_replica, (n) => `${Number(n.toFixed(2))} cores`, (existing * admission.cpu_per_replica) / cores],
      ["disk", "Disk", null, load.disk_free_mib, admission.disk_reserve_mib, admission.disk_per_replica_mib, gib, null],
    ];
    this.room.replaceChildren(...rows.map(([limit, name, used, all, kept, each, words, share]) => {
      const left = all - (used ?? 0);
      const tight = limit === admission.limit;
      return make("tr", {}, make("th", { scope: "row" }, name, tight ? make("span", { class: "late" }, " the limit") : null),
        make("td", {}, share == null ? "" : meter(share, kept / all), used == null ? "" : `${words(used)} of ${words(all)}`),
        ...[words(left), kept ? words(kept) : "", each ? words(each) : "nothing", each ? whole((left - kept) / each) : "any"].map((value) => make("td", { class: "number" }, value)));
    }));
    const blocked = pool.blocked && pool.blocked !== "nothing" ? ` The pool is blocked by ${pool.blocked}.` : "";
    const warm = `Warm: ${capacity.ready} of ${pool.warm_target} wanted.`;
    say(this.limit, `${admission.room ? `Room for ${admission.room} more desktops` : "No room for another desktop"}, by ${admission.limit.replaceAll("_", " ")}. ${warm}${blocked}${pool.last_failure ? ` The last failure: ${shown(pool.last_failure)}` : ""}`);
  }

  close() {
    clearInterval(this.timer);
  }
}

/** How much is used, and how much at the end is kept free. */
function meter(share, kept) {
  const wide = (value) => Math.max(0, Math.min(100, 100 * value));
  return draw("svg", { class: "meter", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    draw("rect", { width: 100, height: 8, class: "ground" }), draw("rect", { x: 100 - wide(kept), width: wide(kept), height: 8, class: "kept" }),
    draw("rect", { width: wide(share), height: 8 }));
}

/** Each golden image with its replicas, and the clients that wait for one. */
function imageTable(images) {
  const names = ["Image", "Leased", "Ready", "Warm wanted", "Waiting"];
  const cell = (value, index) => make("td", { class: index ? "number" : "", title: index ? null : value }, shown(String(value)));
  return make("table", { class: "images" }, make("thead", {}, make("tr", {}, ...names.map((name, index) => make("th", { scope: "col", class: index ? "number" : "" }, name)))),
    make("tbody", {}, ...images.map((image) => make("tr", {}, ...[
      `${image.flavor} ${image.digest.slice(0, 12)}`, image.leased, `${image.ready}${image.starting ? ` + ${image.starting}` : ""}`, image.warm, image.waiting].map(cell)))));
}

function tally(counts, tone, none) {
  const found = Object.entries(counts).sort((a, b) => b[1] - a[1]);
  if (!found.length) return make("p", { class: "faint" }, none);
  return make("table", {}, make("tbody", {}, ...found.map(([why, count]) => make("tr", {},
    make("td", { class: tone(why) }, shown(why.replaceAll("_", " "))), make("td", { class: "number" }, String(count))))));
}
