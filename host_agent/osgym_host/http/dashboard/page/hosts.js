// The hosts of a fleet as a table, and what all of them do together in figures.

import { badge, facts, make, say, shown } from "./dom.js";
import { ACCEPTED, NOT_FINAL, RESTING, atRest, gib, ms, number, per, share, usd } from "./figures.js";
import { Table } from "./lists.js";

const sum = (hosts, read) => hosts.reduce((all, host) => all + (host.state ? read(host.state) : 0), 0);
const resting = (now, stage) => sum(answering(now), (s) => s.capacity[stage] ?? 0);
const answering = (now) => now.hosts.filter((host) => host.state && !host.error);

export const FLEET_FIGURES = [
  ["Hosts that serve", (now) => `${now.serving.length}`, (now) => ` of ${now.hosts.length}`, null],
  ["Leased", (now) => `${sum(answering(now), (s) => s.capacity.leased)}`, (now) => ` of ${sum(answering(now), (s) => s.capacity.max_replicas)}`, (s) => s.leased],
  ["Ready", (now) => `${sum(answering(now), (s) => s.capacity.ready)}`, (now) => ` + ${sum(answering(now), (s) => s.capacity.starting)} starting`, (s) => s.ready],
  ["At rest", (now) => atRest({ paused: resting(now, "paused"), reclaimed: resting(now, "reclaimed") }), () => "", null, RESTING],
  ["Waiting clients", (now) => `${sum(answering(now), (s) => s.capacity.waiting)}`, () => "", (s) => s.waiting],
  ["Steps / s", (now) => number(now.last?.steps_per_s), () => "", (s) => s.steps_per_s],
  ["Step p50 / p95", (now) => ms(now.last?.step_ms.p50), (now) => ` / ${ms(now.last?.step_ms.p95)}`, (s) => s.step_ms.p95],
  ["Create p50 / p95", (now) => ms(now.last?.open_ms.p50), (now) => ` / ${ms(now.last?.open_ms.p95)}`, (s) => s.open_ms.p95],
  ["Not final, 1 h", (now) => share(now.samples), () => "", (s) => s.not_final, NOT_FINAL],
  ["Load", (now) => sum(answering(now), (s) => s.load.load1).toFixed(1), (now) => ` on ${sum(answering(now), (s) => s.load.cpu_count)} cores`, (s) => s.load1],
  ["RAM free", (now) => gib(sum(answering(now), (s) => s.load.ram_available_mib)), (now) => ` of ${(sum(answering(now), (s) => s.load.ram_total_mib) / 1024).toFixed(0)}`, (s) => s.ram_used_mib],
  ["USD per hour", (now) => usd(now.usdPerHour), () => "", null],
  ["USD accepted / scored", (now) => usd(per("accepted", now)), (now) => ` / ${usd(per("scored", now))}`, (s) => s.accepted ?? 0, ACCEPTED],
];

const NUMBERS = new Set(["Leased", "Ready", "By image", "At rest", "Waiting", "Steps/s", "Step p50 / p95", "Not final", "Load", "RAM free", "Disk free", "USD/h"]);

export class Hosts {
  constructor(main) {
    this.table = new Table(main, "Hosts", ["State", "Host", ...NUMBERS], NUMBERS);
    this.retired = make("div");
    main.append(make("h2", {}, "Why replicas ended"), this.retired);
  }

  show({ hosts, query }) {
    const key = JSON.stringify([hosts, query]);
    if (this.key === key) return;
    this.key = key;
    const away = hosts.filter((host) => host.error).length;
    say(this.table.summary, hosts.length ? `${hosts.length} hosts${away ? `, ${away} of them ${away === 1 ? "does" : "do"} not answer` : ""}.` : "No host is known yet.");
    this.table.fill(hosts.map(hostRow), query);
    const counts = {};
    for (const host of hosts) for (const [why, count] of Object.entries(host.retired)) counts[why] = (counts[why] ?? 0) + count;
    const pairs = Object.entries(counts).sort((a, b) => b[1] - a[1]).map(([why, count]) => [why.replaceAll("_", " "), String(count)]);
    this.retired.replaceChildren(pairs.length ? facts(pairs) : make("p", { class: "faint" }, "None has ended yet."));
  }

  close() {
    this.key = null;
  }
}

function hostRow(host) {
  const { state, last, pool } = host;
  const name = shown(host.name);
  const blocked = pool?.blocked && pool.blocked !== "nothing" ? `blocked by ${shown(pool.blocked)}` : "";
  const link = make("td", { class: "long" }, make("a", { href: `${host.at}ui` }, name),
    name === host.key ? null : make("span", { class: "faint" }, ` ${host.key}`),
    blocked ? make("span", { class: "late" }, ` ${blocked}`) : null,
    host.error ? make("span", { class: "bad" }, ` ${shown(host.error)}`) : null);
  const values = state && !host.error ? figuresOf(host, state, last) : [...NUMBERS].map(() => "");
  const text = [host.key, name, host.phase, blocked, host.error].join(" ");
  return { text, cells: () => [make("td", {}, badge(host.phase)), link, ...values.map((value) => make("td", { class: "number" }, value))] };
}

function figuresOf(host, { capacity, load, images = [] }, last) {
  return [
    `${capacity.leased} / ${capacity.max_replicas}`,
    `${capacity.ready}${capacity.starting ? ` + ${capacity.starting}` : ""}`,
    images.map((image) => `${shown(image.flavor)} ${image.leased} + ${image.ready}`).join(", "),
    atRest(capacity),
    String(capacity.waiting),
    number(last?.steps_per_s),
    `${ms(last?.step_ms.p50)} / ${ms(last?.step_ms.p95)}`,
    share([host]),
    `${load.load1.toFixed(1)} / ${load.cpu_count}`,
    gib(load.ram_available_mib),
    gib(load.disk_free_mib),
    usd(host.usd_per_hour),
  ];
}
