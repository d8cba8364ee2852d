// The list of all requests of a session: each that left, with its status, its times and its cost. Requests that lamina
// sent by itself, and those of sub-agents, are rows of their own. Only rows in sight are in the document.
import { go } from "./address.js";
import { date, h, money, number, percent, plural, replace, tokens } from "./dom.js";
import { listEvents } from "./picture.js";

const ROW = 28;
const COLUMNS = ["#", "Time", "Status", "What happened", "Tokens", "Cached", "Answer", "First", "Last", "Cost"];

export async function drawRequests({ body, session, address }) {
  const rows = listRows(session);
  const spacer = h("div", { class: "spacer", role: "presentation", style: { height: `${rows.length * ROW}px` } });
  const list = h("div", { class: "request-rows", role: "listbox", tabindex: "0", "aria-label": plural(rows.length, "request") }, spacer);
  const openRow = (row) => (row.lane ? go({ session: row.lane.id, request: row.call.number, view: "request", segment: null }) : go({ view: "request", request: row.call.number, segment: null }));
  let current = Math.max(rows.findIndex((row) => !row.lane && row.call.number === address.request), 0);
  let drawn = ""; // rows that are there already are left alone: somebody may read or point at one
  function draw() {
    const first = Math.max(Math.floor(list.scrollTop / ROW) - 10, 0);
    const last = Math.min(first + Math.ceil((list.clientHeight || 600) / ROW) + 20, rows.length);
    if (drawn === `${first} ${last} ${current}`) return;
    drawn = `${first} ${last} ${current}`;
    spacer.replaceChildren(...rows.slice(first, last).map((row, at) => makeRow(row, first + at, { current, count: rows.length, onOpen: openRow })));
  }
  function showCurrent() {
    const top = current * ROW;
    if (top < list.scrollTop || top > list.scrollTop + list.clientHeight - ROW) list.scrollTop = Math.max(top - list.clientHeight / 2, 0);
    draw();
  }
  list.addEventListener("scroll", draw, { passive: true });
  list.addEventListener("keydown", (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15 }[event.key];
    if (event.key === "Enter" && rows.length) openRow(rows[current]);
    if (!move) return;
    event.preventDefault();
    current = Math.min(Math.max(current + move, 0), rows.length - 1);
    showCurrent();
  });
  replace(
    body,
    h("div", { class: "request-head" }, h("h2", {}, "Requests"), h("p", { class: "faint" }, "Everything that was sent, in its order. Choose one to see what the model saw and what it answered.")),
    h("div", { class: "request-table" }, h("div", { class: "request-row header", "aria-hidden": "true" }, COLUMNS.map((name) => h("span", {}, name))), list),
  );
  await new Promise((done) => requestAnimationFrame(done)); // its height is known then
  showCurrent();
}

// Sub-agents stand after the request of their parent that was sent last before them.
function listRows(session) {
  const rows = session.calls.map((call) => ({ call, lane: null, at: call.at }));
  for (const lane of session.lanes) for (const call of lane.calls) rows.push({ call, lane, at: call.at });
  if (!session.lanes.length) return rows;
  let time = 0;
  const timed = rows.map((row, order) => {
    time = row.at ?? time;
    return { ...row, time, order };
  });
  return timed.sort((one, other) => one.time - other.time || one.order - other.order);
}

function makeRow({ call, lane }, at, { current, count, onOpen }) {
  const attributes = {
    class: `request-row${lane ? " child" : ""}${at === current ? " current" : ""}`,
    role: "option",
    "aria-selected": String(at === current),
    "aria-posinset": String(at + 1),
    "aria-setsize": String(count),
    "data-number": String(call.number),
    style: { top: `${at * ROW}px` },
    onclick: () => onOpen({ call, lane }),
  };
  const time = call.at === null ? "–" : date(call.at, false);
  if (lane) {
    return h("div", attributes, h("span", {}, `↳ ${call.number + 1}`), h("span", {}, time), h("span", {}, ""), h("span", { class: "what" }, lane.first_words || lane.name), h("span", {}, call.tokens === null ? "–" : tokens(call.tokens)), ["", "", "", "", ""].map((words) => h("span", {}, words)));
  }
  const all = call.read + call.written + call.uncached;
  const wait = (value) => (value ? `${value.toFixed(1)} s` : "–");
  return h(
    "div",
    attributes,
    h("span", {}, number(call.number + 1)),
    h("span", {}, time),
    h("span", { class: call.refusal && !call.is_open ? "bad" : null }, call.is_open ? "open" : call.status || "–"),
    h("span", { class: "what" }, whatHappened(call)),
    h("span", {}, call.tokens ? tokens(call.tokens) : "–"),
    h("span", {}, all ? percent(call.read, all) : "–"),
    h("span", {}, call.output ? tokens(call.output) : "–"),
    h("span", {}, wait(call.first)),
    h("span", {}, wait(call.last)),
    h("span", {}, call.dollars === null ? "–" : money(call.dollars)),
  );
}

// What happened, or else what the model did: the first tool call of its answer.
function whatHappened(call) {
  const events = listEvents(call);
  return events.length ? events.join(" · ") : call.calls;
}
