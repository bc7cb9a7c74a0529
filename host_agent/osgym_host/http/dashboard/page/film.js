// The pictures of a recorded episode: whole ones as they are looked at, small ones in a strip as it is scrolled.

import { ask } from "./api.js";
import { make, say, shown } from "./dom.js";

const KEPT = 24;
const AT_ONCE = 2;
const SMALL = [160, 90];
const MOST_SMALL = 120;

/** The frames of an episode by their number: the last ones that were asked for stay. */
export class Frames {
  constructor(id, signal) {
    this.path = `v1/episodes/${encodeURIComponent(id)}/frames`;
    this.signal = signal;
    this.kept = new Map();
  }

  /** The bytes of one. */
  blob(number) {
    const known = this.kept.get(number);
    this.kept.delete(number);
    const found = known ?? this.fetch(number);
    this.kept.set(number, found);
    if (this.kept.size > KEPT) this.kept.delete(this.kept.keys().next().value);
    return found;
  }

  async fetch(number) {
    try {
      return await (await ask(`${this.path}/${number}`, { signal: this.signal })).blob();
    } catch (error) {
      this.kept.delete(number);
      throw error;
    }
  }
}

/** A strip of buttons, one for each position; the picture of one is drawn when it comes into view. */
export class Film {
  /** `choose` gets the position that is clicked. */
  constructor(frames, choose) {
    this.frames = frames;
    this.choose = choose;
    this.element = make("div", { class: "film", role: "group", "aria-label": "All steps" });
    this.tiles = [];
    this.wanted = new Set();
    this.drawn = new Set();
    this.busy = 0;
    this.seen = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        const tile = this.tiles[Number(target.dataset.at)];
        if (tile && isIntersecting) this.wanted.add(tile);
        else this.wanted.delete(tile);
      }
      this.work();
    }, { root: this.element, rootMargin: "0px 400px" });
  }

  /** `tiles`: of each position its words, the number of its frame or null, and what went wrong. */
  show(tiles, chosen) {
    tiles.forEach(({ words, frame, wrong }, at) => {
      const tile = (this.tiles[at] ??= this.add(at));
      if (tile.frame !== frame) {
        tile.frame = frame;
        this.drawn.delete(tile);
        this.seen.unobserve(tile.button);
        this.seen.observe(tile.button);
      }
      const text = wrong ? `${words} ${wrong.tone === "bad" ? "✕" : "△"} ${wrong.text}` : words;
      say(tile.words, shown(text, 200));
      tile.words.className = wrong?.tone ?? "";
    });
    for (const tile of this.tiles.splice(tiles.length)) {
      this.seen.unobserve(tile.button);
      this.drawn.delete(tile);
      tile.button.remove();
    }
    this.mark(chosen);
  }

  mark(chosen) {
    if (this.chosen === chosen) return;
    this.tiles[this.chosen]?.button.removeAttribute("aria-current");
    this.chosen = chosen;
    const button = this.tiles[chosen]?.button;
    button?.setAttribute("aria-current", "step");
    if (button) this.element.scrollLeft = button.offsetLeft - this.element.offsetLeft - (this.element.clientWidth - button.clientWidth) / 2;
  }

  add(at) {
    const place = make("span", { class: "small" }), words = make("span");
    const button = make("button", { type: "button", "data-at": at, onclick: () => this.choose(at) }, place, words);
    this.element.append(button);
    return { button, place, words, frame: null };
  }

  work() {
    for (const tile of this.wanted) {
      if (this.busy >= AT_ONCE) return;
      this.wanted.delete(tile);
      if (tile.frame === null || this.drawn.has(tile)) continue;
      this.busy += 1;
      this.draw(tile).catch(() => {}).finally(() => {
        this.busy -= 1;
        this.work();
      });
    }
  }

  async draw(tile) {
    const { frame } = tile;
    const [resizeWidth, resizeHeight] = SMALL;
    const bitmap = await createImageBitmap(await this.frames.blob(frame), { resizeWidth, resizeHeight, resizeQuality: "medium" });
    const canvas = make("canvas", { width: resizeWidth, height: resizeHeight, "aria-hidden": "true" });
    canvas.getContext("2d").drawImage(bitmap, 0, 0);
    bitmap.close();
    if (tile.frame !== frame) return;
    tile.place.replaceChildren(canvas);
    this.drawn.add(tile);
    if (this.drawn.size <= MOST_SMALL) return;
    const [oldest] = this.drawn;
    this.drawn.delete(oldest);
    oldest.place.replaceChildren();
    this.seen.unobserve(oldest.button); // so that it is told of again when it is in view
    this.seen.observe(oldest.button);
  }

  close() {
    this.seen.disconnect();
    this.wanted.clear();
  }
}
