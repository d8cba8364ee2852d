// Makes elements. Text always goes in as text, never as markup: everything shown was written by somebody else.

export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

// The same for a part of a drawing.
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (isMissing(value)) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  append(element, children);
  return element;
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "style") for (const [property, word] of Object.entries(value)) setStyle(element, property, word);
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

function setStyle(element, property, word) {
  if (property.startsWith("--")) element.style.setProperty(property, word);
  else element.style[property] = word;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child.nodeType ? child : document.createTextNode(String(child)));
  }
}

export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

export function button(words, onclick, attributes = {}) {
  return h("button", { type: "button", onclick, ...attributes }, words);
}

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const isMissing = (value) => value === null || value === undefined;

export const number = (value) => (isMissing(value) ? "–" : whole.format(Math.round(value)));
export const tokens = (value) => (isMissing(value) ? "–" : short.format(value));
export const share = (part) => (isMissing(part) ? "–" : `${Math.round(100 * part)} %`);
export const percent = (part, all) => (all ? `${Math.round((100 * part) / all)} %` : "–");
export const plural = (count, word, several = `${word}s`) => `${number(count)} ${count === 1 ? word : several}`;

export function money(dollars) {
  if (isMissing(dollars)) return "no price";
  if (dollars > 0 && dollars < 0.00005) return "< $0.0001";
  if (dollars !== 0 && Math.abs(dollars) < 0.01) return `$${dollars.toFixed(4)}`;
  return `$${dollars.toFixed(2)}`;
}

// "at least $1.20" if some requests of the sum have no price.
export const atLeast = (dollars, isAtLeast) => `${isAtLeast ? "at least " : ""}${money(dollars)}`;

export function date(seconds, withDate = true) {
  if (isMissing(seconds)) return "time not recorded";
  const moment = new Date(seconds * 1000);
  const time = moment.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  if (!withDate) return time;
  return `${moment.toLocaleDateString("en-GB", { day: "2-digit", month: "short", year: "numeric" })} ${time}`;
}

export function span(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export function say(text) {
  document.getElementById("status").textContent = text;
}

export const capital = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);

export function download(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  const link = h("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    say("Copied");
  } catch {
    say("The browser does not allow copying here");
  }
}

// The words of an address after its question mark, or nothing if there are none.
export function withQuestionMark(query) {
  const words = query.toString();
  return words ? `?${words}` : "";
}
