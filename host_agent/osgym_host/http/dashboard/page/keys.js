// What a key of the browser's keyboard is on a desktop.

const NAMES = {
  Enter: "Return", Backspace: "BackSpace", ArrowLeft: "Left", ArrowRight: "Right", ArrowUp: "Up", ArrowDown: "Down",
  PageUp: "Page_Up", PageDown: "Page_Down", ContextMenu: "Menu", PrintScreen: "Print", " ": "space",
};
const ALONE = new Set(["Shift", "Control", "Alt", "Meta", "AltGraph", "CapsLock", "Dead", "Process", "Unidentified", "NumLock"]);

/** The action of a key that goes down, null for one that does nothing by itself. */
export function keyAction(event) {
  const { key } = event;
  if (event.isComposing || ALONE.has(key)) return null;
  const alt = event.altKey && !event.getModifierState?.("AltGraph");
  const control = event.ctrlKey && !event.getModifierState?.("AltGraph");
  if ([...key].length === 1 && !control && !alt && !event.metaKey) return { op: "type", text: key };
  if (control && key.toLowerCase() === "v") return null; // the browser's own paste gives the text
  const modifiers = [control && "ctrl", alt && "alt", event.metaKey && "super", event.shiftKey && "shift"].filter(Boolean);
  const name = NAMES[key] ?? ([...key].length === 1 ? key.toLowerCase() : key);
  return { op: "key", keys: [...modifiers, name] };
}
