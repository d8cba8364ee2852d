// Asks the server for views, or reads them from the page itself if it was saved as one file.
import { h, replace, withQuestionMark } from "./dom.js";

const embedded = document.getElementById("lamina-data");
const saved = embedded ? JSON.parse(embedded.textContent) : null;
const answers = new Map();
const LOOK_EVERY = 2000; // milliseconds between two looks whether anything was recorded
const SHOW_AFTER = 250; // milliseconds of waiting, after which the page says so
const MISSING = "This file does not hold that. Open the session with `lamina inspect` to see it.";
let waiting = 0;

export const isSaved = saved !== null;

// The token of the address goes into a header of each request, and out of the address bar.
function findToken() {
  const token = new URLSearchParams(location.search).get("token");
  if (token) {
    sessionStorage.setItem("token", token);
    history.replaceState(null, "", location.pathname + location.hash);
  }
  return sessionStorage.getItem("token");
}

const token = isSaved ? null : findToken();

export function ask(path, values = {}) {
  const query = new URLSearchParams(Object.entries(values).filter(([, value]) => value));
  return fetch(`api/${path}${withQuestionMark(query)}`, { headers: token ? { "x-lamina-token": token } : {} });
}

export async function get(path, values = {}) {
  if (saved) return readSaved(path);
  const key = JSON.stringify([path, values]);
  if (answers.has(key)) return answers.get(key);
  waiting += 1;
  setTimeout(showWaiting, SHOW_AFTER);
  try {
    const response = await ask(path, values);
    const value = await response.json();
    if (!response.ok) throw new Error(value.error || `the server answered ${response.status}`);
    answers.set(key, value);
    if (answers.size > 60) answers.delete(answers.keys().next().value);
    return value;
  } finally {
    waiting -= 1;
    showWaiting();
  }
}

function showWaiting() {
  const box = document.getElementById("waiting");
  box.hidden = !waiting;
  replace(box, waiting ? [h("progress", { "aria-label": "Working" }), h("span", {}, "Working …")] : null);
}

function readSaved(path) {
  const [kind, session, , ref] = path.split("/");
  const texts = saved[`/texts/${session}`] || {};
  const value = kind === "segment" ? texts[decodeURIComponent(ref)] : saved[`/api/${path}`];
  if (value === undefined) throw new Error(MISSING);
  if (kind !== "request") return value;
  // Requests share their entries: each holds [number of the entry, layer, form, tokens, cache].
  const rows = saved[`/rows/${session}`];
  const entries = value.entries.map(([at, layer, form, tokens, cache]) => ({ ...rows[at], layer, form, tokens, cache }));
  return { ...value, entries };
}

// Calls back whenever something was recorded, and says whether the server is there.
export function followSessions(onChange, onSign) {
  if (saved) return;
  let last = null;
  async function look() {
    if (document.hidden && last !== null) return;
    try {
      const { state } = await (await ask("state")).json();
      onSign(true);
      if (last !== null && state !== last) {
        answers.clear();
        onChange();
      }
      last = state;
    } catch {
      onSign(false);
    }
  }
  look();
  setInterval(look, LOOK_EVERY);
}
