// Asks the server for views, or reads them from the page itself if it was saved as one file.

import { withQuestionMark } from "./dom.js";

const embedded = document.getElementById("lamina-data");
const saved = embedded ? JSON.parse(embedded.textContent) : null;
const answers = new Map();

export const isSaved = saved !== null;

export async function get(path, settings = {}, words = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of [...Object.entries(settings), ...Object.entries(words)]) {
    if (value !== "" && value !== null && value !== undefined) query.set(name, value);
  }
  const address = `/api/${path}${withQuestionMark(query)}`;
  if (saved) return fromFile(path, address);
  if (answers.has(address)) return answers.get(address);
  const response = await fetch(address, { headers: { accept: "application/json" } });
  const value = await response.json();
  if (!response.ok) throw new Error(value.error || `the server answered ${response.status}`);
  answers.set(address, value);
  if (answers.size > 60) answers.delete(answers.keys().next().value);
  return value;
}

function fromFile(path, address) {
  const [kind, session, , ref] = path.split("/");
  if (kind === "segment") return textFromFile(session, decodeURIComponent(ref));
  const value = saved[address] ?? saved[`/api/${path}`];
  if (value === undefined) {
    throw new Error("This file does not hold that. Open the session with `lamina inspect` to see it.");
  }
  return value;
}

function textFromFile(session, ref) {
  const segment = (saved[`/texts/${session}`] || {})[ref];
  if (segment === undefined) {
    throw new Error("This file does not hold that segment. Open the session with `lamina inspect` to see it.");
  }
  return segment;
}

export function forget() {
  answers.clear();
}

export function exportAddress(kind, words, settings) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(settings)) if (value !== "") query.set(name, value);
  return `/api/${kind}/${words.join("/")}${withQuestionMark(query)}`;
}

export function followFiles(onChange) {
  if (saved || !("EventSource" in window)) return null;
  let last = null;
  const events = new EventSource("/api/live");
  events.onmessage = (event) => {
    if (last !== null && event.data !== last) {
      forget();
      onChange();
    }
    last = event.data;
  };
  return events;
}
