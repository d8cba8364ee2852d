// One request: its map, its entries, and the segment that is selected.
import { get, isSaved } from "./api.js";
import { go, readAddress, writeAddress } from "./address.js";
import { button, capital, date, h, money, number, plural, replace, say, span, tokens } from "./dom.js";
import { drawAnswer, drawRaw, showAnswer } from "./body.js";
import { FORMS } from "./colours.js";
import { makeList, makeMap } from "./map.js";
import { listEvents } from "./picture.js";
import { markWords } from "./search.js";
import { makeSegmentPane } from "./segment.js";

const SHOWS = [["entries", "Entries"], ["raw", "Raw JSON"], ["answer", "Answer"]];

let chips = new Set();
let drawn = null; // the request that is drawn now: selecting a segment of it changes the selection only

export async function drawRequest({ body, session, address, isCurrent }) {
  const request = await get(`request/${address.session}/${address.request}`);
  if (!isCurrent()) return;
  const show = SHOWS.some(([name]) => name === address.show) ? address.show : "entries";
  if (show !== "entries") {
    drawn = null;
    const box = h("div", { class: "body-view" });
    replace(body, makeHead(session, request, show), box);
    if (show === "raw") await drawRaw(box, address);
    else await drawAnswer(box, request, address);
    markWords(box, address.find);
    return;
  }
  const isSame = drawn && drawn.request === request && drawn.map.element.isConnected;
  if (!isSame) drawn = drawWhole(body, session, request, address);
  drawn.map.select(address.segment);
  drawn.list.select(address.segment);
  if (address.segment) await drawSegment(drawn.side, address, isCurrent);
  else replace(drawn.side, showLargest(request));
}

// The line above a request: which one it is, what happened, and the ways to look at it.
function makeHead(session, request, show, ...more) {
  const choose = (name) => go({ show: name, segment: null });
  const choices = SHOWS.filter(([name]) => !isSaved || name === "entries" || name === "answer");
  const switches = choices.map(([name, title]) => button(title, () => choose(name), { "data-show": name, "aria-pressed": String(name === show) }));
  return h(
    "div",
    { class: "request-head" },
    h(
      "div",
      { class: "head-line" },
      h("h2", {}, `Request ${request.call.number + 1}`, h("span", { class: "faint" }, ` of ${session.calls.length} · ${whenSent(request)}`)),
      h("div", { class: "switch", role: "group", "aria-label": "How to look at this request" }, switches),
      makeButtons(session, request),
    ),
    h("p", {}, describeRequest(request)),
    more,
  );
}

function drawWhole(body, session, request, address) {
  const kinds = [...new Set(request.entries.map((entry) => entry.kind))].sort();
  chips = new Set([...chips].filter((chip) => kinds.includes(chip) || chip in FORMS));
  const filter = (entry) => chips.size === 0 || chips.has(entry.kind) || chips.has(entry.form);
  const onSelect = (ref) => go({ segment: ref, request: request.call.number });
  const map = makeMap(request, { onSelect });
  const list = makeList(request, { selected: address.segment, onSelect, filter });
  const side = h("div", { class: "side" });
  const redraw = () => {
    drawn = null;
    drawRequest({ body, session, address: { ...readAddress(), request: request.call.number }, isCurrent: () => body.isConnected });
  };
  const chip = (name, title) => {
    const toggle = () => {
      if (!chips.delete(name)) chips.add(name);
      redraw();
    };
    return button(title, toggle, { class: "chip", "aria-pressed": String(chips.has(name)) });
  };
  const forms = Object.entries(FORMS).filter(([form]) => request.entries.some((entry) => entry.form === form));
  replace(
    body,
    makeHead(
      session,
      request,
      "entries",
      h("div", { class: "chips", role: "group", "aria-label": "Show only" }, kinds.map((kind) => chip(kind, kind.replace("_", " "))), forms.map(([form, look]) => chip(form, `${look.glyph} ${look.words}`))),
    ),
    h("div", { class: "columns" }, h("div", { class: "map-box" }, map.element, describeMarkers(request)), list.element, side),
  );
  return { request, map, list, side };
}

function whenSent({ call, turn }) {
  const pause = call.idle > 60 ? ` · after ${span(call.idle)}` : "";
  return `turn ${turn} · ${date(call.at)}${pause}`;
}

function describeRequest(request) {
  const { call, unrecorded } = request;
  const facts = [`${number(call.tokens)} tokens in ${plural(request.sent, "entry", "entries")}`, money(call.dollars)];
  if (call.whole !== null && call.whole > call.tokens) facts.push(`${number(call.whole)} tokens without lamina`);
  if (request.left_out) facts.push(`${plural(request.left_out, "piece")} left out`);
  if (unrecorded) facts.push(`of them about ${tokens(unrecorded)} of system text and tools that are not recorded`);
  return [...facts, ...listEvents(call)].map(capital).map((words) => `${words}.`).join(" ");
}

function makeButtons(session, request) {
  const at = request.call.number;
  const step = (move, words) => button(words, () => go({ request: at + move, segment: null }), { disabled: !session.calls[at + move] });
  return h("div", { class: "buttons" }, step(-1, "← earlier"), step(1, "later →"), at > 0 && button("Why this cost", () => go({ view: "compare", segment: null }), { id: "why-cost" }));
}

function describeMarkers(request) {
  if (!request.markers.length) return null;
  const places = request.markers.map((marker) => h("li", {}, `${tokens(marker.tokens)}: ${marker.why || "breakpoint"}`));
  return h(
    "details",
    { class: "markers" },
    h("summary", {}, plural(request.markers.length, "cache breakpoint")),
    h("p", { class: "faint small" }, "The line above each shows how far back the cache is searched from it."),
    h("ul", {}, places),
  );
}

// What is largest, and what the model did not see.
function showLargest(request) {
  const bySize = (amount) => (one, other) => amount(other) - amount(one);
  const sent = request.entries.filter((entry) => entry.form !== "OMITTED").sort(bySize((entry) => entry.tokens));
  const lowered = request.entries.filter((entry) => entry.form !== "FULL" && !entry.own).sort(bySize((entry) => entry.full_tokens));
  const item = (entry, amount, form) =>
    h("li", {}, h("span", { class: "num" }, number(amount)), button(nameOf(entry), () => go({ segment: entry.ref, request: request.call.number }), { class: "link" }), form ? h("span", { class: "faint" }, ` ${form}`) : null);
  return h(
    "section",
    { class: "pane" },
    request.answer ? [h("h3", {}, "What came back"), h("div", { class: "answer-box", id: "answer" }, showAnswer(request, { isShort: true }))] : null,
    h("h3", {}, "What is largest"),
    h("ol", { class: "ranked", id: "largest" }, sent.slice(0, 8).map((entry) => item(entry, entry.tokens))),
    h("h3", {}, "What the model did not see"),
    lowered.length
      ? h("ol", { class: "ranked", id: "unseen" }, lowered.slice(0, 8).map((entry) => item(entry, entry.full_tokens, FORMS[entry.form].words)))
      : h("p", { class: "empty", id: "unseen" }, request.has_reasons ? "Nothing: everything was sent in full." : "Not kept."),
    request.notes.length ? [h("h3", {}, "Notes"), h("ul", {}, request.notes.map((note) => h("li", {}, note)))] : null,
  );
}

function nameOf(entry) {
  const name = entry.what || entry.kind;
  if (name.includes(" ")) return name;
  return `${name} ${entry.preview.length > 50 ? `${entry.preview.slice(0, 49).trimEnd()}…` : entry.preview}`;
}

async function drawSegment(side, address, isCurrent) {
  const path = `${address.session}/${address.request}/${encodeURIComponent(address.segment)}`;
  try {
    const segment = await get(`segment/${path}`);
    if (!isCurrent()) return;
    const pane = makeSegmentPane(segment, {
      tab: address.tab,
      onTab: (tab) => history.replaceState(null, "", writeAddress({ ...readAddress(), tab })),
    });
    pane.addEventListener("click", (event) => {
      const link = event.target.closest(".to-request");
      if (!link) return;
      event.preventDefault();
      go({ request: Number(link.dataset.request) });
    });
    const close = button("✕ close", () => go({ segment: null }), { class: "close quiet" });
    replace(side, close, pane);
    markWords(pane.querySelector(".pane-body"), address.find);
    say(`${segment.what || segment.kind}, ${FORMS[segment.form].words}`);
  } catch (error) {
    if (isCurrent()) replace(side, h("p", { class: "problem" }, error.message));
  }
}
