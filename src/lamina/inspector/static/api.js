// Asks the server for views, or reads them from the page itself if it was saved as one file.

import { makePauses, withQuestionMark } from "./dom.js";
import { beginWaiting } from "./waiting.js";
import { findSavedText, findVisibleInSaved, openSavedRequest } from "./saved.js";

const embedded = document.getElementById("lamina-data");
const saved = embedded ? JSON.parse(embedded.textContent) : null;
const answers = new Map();
const pageName = Math.random().toString(36).slice(2, 10); // two pages of one server do not share their jobs
let jobs = 0;

export const isSaved = saved !== null;

export async function get(path, settings = {}, words = {}) {
  const address = makeAddress(path, { ...settings, ...words });
  if (saved) return readSaved(path, address, words);
  if (answers.has(address)) return answers.get(address);
  const job = `${pageName}-${(jobs += 1)}`;
  const endWaiting = beginWaiting(() => fetch(`api/progress/${job}`).then((response) => response.json()));
  let response;
  let value;
  try {
    response = await fetch(address, { headers: { accept: "application/x-ndjson, application/json", "x-lamina-job": job } });
    value = await readAnswer(response);
  } finally {
    endWaiting();
  }
  if (!response.ok) throw new Error(value.error || `the server answered ${response.status}`);
  answers.set(address, value);
  if (answers.size > 60) answers.delete(answers.keys().next().value);
  return value;
}

// A long answer comes in lines: the first is the object, the others add items to its lists. Between lines the page
// answers its reader, so that thousands of requests do not hold it up.
async function readAnswer(response) {
  if (!(response.headers.get("content-type") || "").startsWith("application/x-ndjson")) return response.json();
  const lines = (await response.text()).split("\n");
  const value = JSON.parse(lines[0]);
  const breathe = makePauses();
  for (const line of lines.slice(1)) {
    await breathe();
    const { list, items } = JSON.parse(line);
    for (const item of items) value[list].push(item);
  }
  return value;
}

// Relative to the page, which may be mounted anywhere.
export function makeAddress(path, values = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== "" && value !== null && value !== undefined) query.set(name, value);
  }
  return `api/${path}${withQuestionMark(query)}`;
}

function readSaved(path, address, words) {
  const [kind, session, , ref] = path.split("/");
  if (kind === "segment") return findSavedText(saved, session, decodeURIComponent(ref));
  if (kind === "visible") return findVisibleInSaved(saved, session, words.text);
  if (kind === "request") return openSavedRequest(saved, path);
  const value = saved[`/${address}`] ?? saved[`/api/${path}`]; // whatever the settings: it is shown as it was recorded
  if (value === undefined) {
    throw new Error("This file does not hold that. Open the session with `lamina inspect` to see it.");
  }
  return value;
}

export function forget() {
  answers.clear();
}

// Calls back whenever a file has changed. If the server ends, the browser tries again until it is back.
export function followFiles(onChange, onSign) {
  if (saved || !("EventSource" in window)) return;
  let last = null;
  let events = null;
  function connect() {
    events = new EventSource("api/live");
    events.onopen = () => onSign(true);
    events.onerror = () => {
      onSign(false);
      if (events.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
    };
    events.onmessage = (event) => {
      if (last !== null && event.data !== last) {
        forget();
        onChange();
      }
      last = event.data;
    };
  }
  connect();
}
