"use strict";
// Shows one episode of which all is in this page. Texts of guests and models are set as text, never as HTML.
(() => {
  const data = JSON.parse(document.getElementById("episode").textContent);
  const at = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  const KEPT = 16; // images that stay decoded
  const last = data.steps.length; // the position after the last step: how it ended
  const urls = new Map();
  let position = 0;
  let mode = "before";
  let timer = 0;

  function add(parent, name, text, tone) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (tone) made.className = tone;
    parent.append(made);
    return made;
  }

  function decoded(id) {
    const chunk = at(id);
    const bytes = Uint8Array.from(atob(chunk.content.textContent), (c) => c.charCodeAt(0));
    return URL.createObjectURL(new Blob([bytes], { type: "image/webp" }));
  }

  function frame(number) {
    const known = urls.get(number);
    urls.delete(number);
    const url = known || decoded("f" + number);
    urls.set(number, url);
    for (const old of urls.keys()) {
      if (urls.size <= KEPT) break;
      URL.revokeObjectURL(urls.get(old));
      urls.delete(old);
    }
    return url;
  }

  // What is on the screen at a position: [number of the frame, number of one to compare it with, marks].
  function shown() {
    if (last === 0) return [data.first, null, []];
    if (position === last) return [data.steps[last - 1].after, null, []];
    const step = data.steps[position];
    if (mode === "after") return [step.after, null, []];
    if (mode === "difference") return [step.before, step.after, []];
    return [step.before, null, step.marks];
  }

  function picture() {
    const [below, above, marks] = shown();
    const both = [[at("below"), below], [at("above"), above]];
    for (const [image, number] of both) {
      image.hidden = number === null;
      if (number !== null) image.src = frame(number);
      else image.removeAttribute("src");
    }
    at("nothing").hidden = below !== null;
    const svg = at("marks");
    svg.replaceChildren(...marks.flatMap(drawn));
  }

  function drawn(mark) {
    const size = Math.max(...data.screen) / 80;
    const name = mark.path ? "polyline" : "circle";
    const values = mark.path
      ? { points: mark.path.map((p) => p.join(",")).join(" ") }
      : { cx: mark.x, cy: mark.y, r: size };
    return [["#fff", size / 2.2], ["#e5162b", size / 4]].map(([stroke, width]) => {
      const made = document.createElementNS(SVG, name);
      const all = { ...values, fill: "none", stroke, "stroke-width": width };
      for (const [key, value] of Object.entries(all)) made.setAttribute(key, value);
      return made;
    });
  }

  function told() {
    const box = at("told");
    box.replaceChildren();
    if (position === last) {
      add(box, "h2", last ? "The end" : "The first screen");
      for (const [name, value] of data.end) {
        add(box, "h3", name);
        add(box, "pre", value);
      }
      return;
    }
    const step = data.steps[position];
    add(box, "h2", `Step ${step.number} of ${last}`);
    for (const note of step.notes) add(box, "p", note.text, note.tone);
    if (step.text) {
      add(box, "h3", "The model");
      add(box, "pre", step.text);
    }
    add(box, "h3", "Done");
    add(box, "pre", step.actions.join("\n") || "nothing");
    if (step.times.length) {
      add(box, "h3", step.total ? `Took ${step.total}` : "Time in the desktop");
      const table = add(box, "table");
      const most = Math.max(...step.times.map((part) => part[1]), 1);
      for (const [name, ms] of step.times) {
        const row = add(table, "tr");
        add(row, "td", name, "faint");
        add(row, "td", `${ms.toFixed(1)} ms`);
        add(add(row, "td"), "i").style.width = `${(100 * ms) / most}%`;
      }
    }
    if (step.settle) {
      add(box, "h3", "The wait for the screen");
      add(box, "div", step.settle);
    }
  }

  function say() {
    return position === last ? "the end" : `step ${data.steps[position].number} of ${last}`;
  }

  function go(to, keep) {
    position = Math.min(Math.max(to, 0), last);
    const scrubber = at("scrubber");
    scrubber.value = position;
    scrubber.setAttribute("aria-valuetext", say());
    at("where").textContent = say();
    document.title = `${data.title}: ${say()}`;
    [...at("film").children].forEach((tile, n) => {
      if (n === position) {
        tile.setAttribute("aria-current", "step");
        tile.setAttribute("aria-pressed", "true");
        const film = at("film");
        film.scrollLeft = tile.offsetLeft - film.offsetLeft - film.clientWidth / 2 + tile.clientWidth / 2;
      } else {
        tile.removeAttribute("aria-current");
        tile.setAttribute("aria-pressed", "false");
      }
    });
    picture();
    told();
    if (!keep) history.replaceState(null, "", `#step=${position === last ? "end" : data.steps[position].number}`);
  }

  function look(to) {
    mode = to;
    for (const name of ["before", "after", "difference"])
      at(name).setAttribute("aria-pressed", String(name === mode));
    picture();
  }

  function play(on) {
    clearInterval(timer);
    timer = 0;
    at("play").textContent = on ? "Pause" : "Play";
    if (!on) return;
    if (position === last) go(0);
    timer = setInterval(() => {
      if (position >= last) play(false);
      else go(position + 1);
    }, 1000 / Number(at("speed").value));
  }

  function film() {
    const tile = (label, number, notes) => {
      const button = add(at("film"), "button");
      button.type = "button";
      const index = at("film").children.length - 1;
      const image = add(button, "img");
      image.alt = "";
      if (number !== null) image.src = decoded("t" + number);
      const worst = notes.find((note) => note.tone === "bad") || notes[0];
      const text = worst ? `${label} ${worst.tone === "bad" ? "✕" : "△"} ${worst.short}` : label;
      add(button, "span", text, worst ? worst.tone : "");
      button.addEventListener("click", () => { play(false); go(index); });
    };
    for (const step of data.steps) tile(`${step.number} ${step.label}`, step.before, step.notes);
    tile("end", last ? data.steps[last - 1].after : data.first, []);
  }

  const keys = {
    ArrowLeft: () => go(position - 1), ArrowRight: () => go(position + 1),
    Home: () => go(0), End: () => go(last), " ": () => play(!timer),
    b: () => look("before"), a: () => look("after"), d: () => look("difference"),
    "?": () => { at("keys").open = !at("keys").open; },
  };

  document.addEventListener("keydown", (event) => {
    const key = keys[event.key];
    if (!key || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.target.tagName === "SELECT" || (event.key === " " && event.target.tagName === "BUTTON")) return;
    event.preventDefault();
    if (event.key !== " " && timer) play(false);
    key();
  });
  at("scrubber").max = last;
  at("scrubber").addEventListener("input", (event) => { play(false); go(Number(event.target.value)); });
  at("play").addEventListener("click", () => play(!timer));
  at("speed").addEventListener("change", () => { if (timer) play(true); });
  for (const name of ["before", "after", "difference"]) at(name).addEventListener("click", () => look(name));
  at("marks").setAttribute("viewBox", `0 0 ${data.screen[0]} ${data.screen[1]}`);
  at("picture").style.aspectRatio = `${data.screen[0]} / ${data.screen[1]}`;
  at("title").textContent = data.title;
  at("reward").textContent = data.reward.text;
  at("reward").className = data.reward.tone;
  for (const [name, value] of data.facts) {
    add(at("facts"), "dt", name);
    add(at("facts"), "dd", value);
  }
  film();
  const asked = /^#step=(\d+|end)$/.exec(location.hash);
  look("before");
  go(!asked ? 0 : asked[1] === "end" ? last : data.steps.findIndex((s) => s.number === Number(asked[1])), true);
})();
