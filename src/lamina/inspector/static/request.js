// One request: its map, its entries, and the segment that is selected.
import { get, isSaved } from "./api.js";
import { go, readAddress, writeAddress } from "./address.js";
import { button, date, h, money, number, plural, replace, say, span, tokens } from "./dom.js";
import { drawAnswer, drawBody, drawRaw, showAnswer } from "./body.js";
import { FORMS } from "./colours.js";
import { makeList, makeMap } from "./map.js";
import { makeEntry, makeMenu } from "./menu.js";
import { listActions } from "./registry.js";
import { markWords } from "./search.js";
import { makeSegmentPane } from "./segment.js";
import { describeLoss, isLost } from "./strip.js";

const SHOWS = [["entries", "Entries"], ["body", "Body"], ["raw", "Raw JSON"], ["answer", "Answer"]];

let chips = new Set();
let drawn = null; // the request that is drawn now: selecting a segment of it changes the selection only

export async function drawRequest({ body, session, address, isCurrent }) {
  const request = await get(`request/${address.session}/${address.request}`, address.settings);
  if (!isCurrent()) return;
  const show = SHOWS.some(([name]) => name === address.own.show) ? address.own.show : "entries";
  if (show !== "entries") {
    drawn = null;
    const box = h("div", { class: "body-view" });
    replace(body, makeHead(session, request, address, show), box);
    if (show === "body") await drawBody(box, address);
    else if (show === "raw") await drawRaw(box, address);
    else await drawAnswer(box, request, address);
    markWords(box, address.find);
    return;
  }
  const isSame = drawn && drawn.request === request && drawn.sort === address.sort && drawn.map.element.isConnected;
  if (!isSame) drawn = drawWhole(body, session, request, address);
  drawn.map.select(address.segment);
  drawn.list.select(address.segment);
  if (address.segment) await drawSegment(drawn.side, address, isCurrent);
  else replace(drawn.side, showLargest(request));
}

// The line above a request: which one it is, what happened, and the ways to look at it.
function makeHead(session, request, address, show, ...more) {
  const choose = (name) => go({ own: name === "entries" ? {} : { show: name }, segment: null });
  const choices = SHOWS.filter(([name]) => !isSaved || name === "entries" || name === "answer");
  const switches = choices.map(([name, title]) => button(title, () => choose(name), { "data-show": name, "aria-pressed": String(name === show) }));
  return h(
    "div",
    { class: "request-head" },
    h(
      "div",
      { class: "head-line" },
      h("h2", {}, `Request ${request.call.number + 1}`, h("span", { class: "faint" }, ` of ${session.calls.length} · ${whenSent(request.call)}`)),
      h("div", { class: "switch", role: "group", "aria-label": "How to look at this request" }, switches),
      makeButtons(session, request, address, show),
    ),
    h("p", {}, describeRequest(request, session)),
    more,
  );
}

function drawWhole(body, session, request, address) {
  const kinds = [...new Set(request.entries.map((entry) => entry.kind))].sort();
  chips = new Set([...chips].filter((chip) => kinds.includes(chip) || chip in FORMS));
  const filter = (entry) => chips.size === 0 || chips.has(entry.kind) || chips.has(entry.form);
  const onSelect = (ref) => go({ segment: ref, request: request.call.number });
  const map = makeMap(request, { selected: address.segment, onSelect });
  const list = makeList(request, { selected: address.segment, onSelect, sort: address.sort, filter });
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
      address,
      "entries",
      h("div", { class: "chips", role: "group", "aria-label": "Show only" }, kinds.map((kind) => chip(kind, kind.replace("_", " "))), forms.map(([form, look]) => chip(form, `${look.glyph} ${look.words}`))),
    ),
    h("div", { class: "columns" }, h("div", { class: "map-box" }, map.element, describeMarkers(request)), list.element, side),
  );
  return { request, sort: address.sort, map, list, side };
}

function whenSent(call) {
  const pause = call.idle > 60 ? ` · after ${span(call.idle)}` : "";
  const turn = call.turn ? `turn ${call.turn} · ` : "";
  return `${turn}${date(call.at)}${pause}`;
}

function describeRequest(request, session) {
  const call = request.call;
  const sentences = [`${number(call.tokens)} tokens in ${plural(call.entries, "entry", "entries")}, ${money(call.dollars)}.`];
  const at = session.calls.findIndex((each) => each.number === call.number);
  const before = at > 0 ? session.calls[at - 1] : null;
  if (before && call.dollars !== null && before.dollars !== null) {
    const more = call.dollars - before.dollars;
    const isEqual = Math.abs(more) < 0.00005;
    sentences.push(isEqual ? "That is as much as the request before." : `That is ${money(Math.abs(more))} ${more < 0 ? "less" : "more"} than the request before.`);
  }
  if (request.unrecorded) {
    sentences.push(`System text and tools are not recorded: about ${tokens(request.unrecorded)} tokens, estimated from the first reported usage.`);
  }
  if (call.reported !== null) sentences.push(`The provider reported ${number(call.reported)} tokens.`);
  if (call.follows !== null) sentences.push(`lamina sent it by itself after request ${call.follows + 1}: ${call.why || "a recall"}.`);
  if (call.recalled) sentences.push("Its answer recalled something; the next request has what the model asked for.");
  if (call.refusal) sentences.push(call.is_open ? `${call.refusal}.` : `It was refused (${call.status || "no answer"}): ${call.refusal}.`);
  if (call.left_out) sentences.push(`${plural(call.left_out, "piece")} left out.`);
  if (call.cut) sentences.push(`Here lamina made a cut (${call.cut}) and shortened or left out ${plural(call.cut_lowered, "piece")}.${describeCutPrice(call)}`);
  if (isLost(call)) sentences.push(`${capital(describeLoss(call))}.`);
  else if (!call.continues && !call.cut) sentences.push("It does not continue the request before it.");
  return sentences.join(" ");
}

// A cut that the cache outlived for the most part has no loss, and so no price of its own.
function describeCutPrice(call) {
  if (!call.loss || call.loss.by !== "lamina" || call.loss.dollars === null) return "";
  const saved = call.loss.saved === null ? "" : `, and saved about ${money(call.loss.saved)} until the next cut`;
  return ` It cost ${money(call.loss.dollars)} more than reading the cache${saved}.`;
}

function makeButtons(session, request, address, show) {
  const call = request.call;
  const at = session.calls.findIndex((each) => each.number === call.number);
  const step = (move, words) => {
    const next = session.calls[at + move];
    return button(words, () => go({ request: next.number, segment: null }), { disabled: !next });
  };
  const isBySize = address.sort === "size";
  const shown = { session, request, address: { ...address, request: call.number } };
  return h(
    "div",
    { class: "buttons" },
    step(-1, "← earlier"),
    step(1, "later →"),
    show === "entries" && button(isBySize ? "In order" : "Largest first", () => go({ sort: isBySize ? "order" : "size" })),
    call.number > 0 && button("Why this cost", () => go({ view: "compare", segment: null }), { id: "why-cost" }),
    makeMenu("Request", listActions("request", shown).map((action) => makeEntry(action, shown)), { id: "request-menu" }),
  );
}

function describeMarkers(request) {
  if (!request.markers.length) return null;
  const places = request.markers.map((marker) => h("li", {}, `${tokens(marker.tokens)}: ${marker.why || "breakpoint"}`));
  return h(
    "details",
    { class: "markers" },
    h("summary", {}, plural(request.markers.length, "cache breakpoint")),
    h("p", { class: "faint small" }, "Where the rules of this cache put breakpoints. The line above each shows how far back the cache is searched from it."),
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

const capital = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);

function nameOf(entry) {
  const name = entry.what || entry.kind;
  if (name.includes(" ")) return name;
  return `${name} ${entry.preview.length > 50 ? `${entry.preview.slice(0, 49).trimEnd()}…` : entry.preview}`;
}

async function drawSegment(side, address, isCurrent) {
  const path = `${address.session}/${address.request}/${encodeURIComponent(address.segment)}`;
  try {
    const segment = await get(`segment/${path}`, address.settings);
    if (!isCurrent()) return;
    const pane = makeSegmentPane(segment, {
      tab: address.tab,
      onTab: (tab) => history.replaceState(null, "", writeAddress({ ...readAddress(), tab })),
      readWhole: () => get(`text/${path}`, address.settings),
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
