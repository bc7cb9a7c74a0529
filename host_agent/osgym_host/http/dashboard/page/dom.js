// Small helpers: elements, text of guests and models as text only, numbers, ages.

const SVG = "http://www.w3.org/2000/svg";
const MAX_CHARS = 2000;

/** An element; what is not an element in `inside` becomes text. */
export function make(tag, attributes = {}, ...inside) {
  const element = document.createElement(tag);
  set(element, attributes);
  element.append(...inside.filter((part) => part != null));
  return element;
}

export function draw(tag, attributes = {}, ...inside) {
  const element = document.createElementNS(SVG, tag);
  set(element, attributes);
  element.append(...inside);
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value != null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
}

/** Set a text only where it differs, so that nothing is laid out anew for nothing. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Text that came from elsewhere: bounded, and what turns its direction or does not show is marked. */
export function shown(value, most = MAX_CHARS) {
  const text = typeof value === "string" ? value : JSON.stringify(value) ?? "";
  const marked = text.replace(/[\p{Cc}\p{Cf}\p{Co}\p{Cn}]/gu, (c) => (c === "\n" || c === "\t" ? c : "\ufffd"));
  return marked.length > most ? `${marked.slice(0, most)}… (${marked.length} characters)` : marked;
}

export function badge(state, words = state) {
  return make("span", { class: `badge is-${state}` }, words);
}

export function seconds(s) {
  if (s == null) return "";
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
}

export function clock(epochS) {
  return new Date(epochS * 1000).toLocaleTimeString([], { hour12: false });
}

/** An action on one line: its name, then its fields. */
export function inWords(action) {
  const { op = "?", ...fields } = action ?? {};
  return shown([op, ...Object.entries(fields).map(([k, v]) => `${k}=${JSON.stringify(v)}`)].join(" "));
}

/** Facts as a list of terms. */
export function facts(pairs) {
  const list = make("dl", { class: "facts" });
  for (const [name, value] of pairs) {
    if (value == null || value === "") continue;
    list.append(make("dt", {}, name), make("dd", {}, value instanceof Node ? value : shown(value)));
  }
  return list;
}
