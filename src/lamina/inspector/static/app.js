// The page: reads the address, asks for the view, draws it. Every view has an address of its own.
import { followFiles, get, isSaved } from "./api.js";
import { SETTINGS, go, readAddress, writeAddress } from "./address.js";
import { button, h, number, replace, say } from "./dom.js";
import { describeFacts, makeFigures, makeSettings } from "./figures.js";
import { findNotices, isFollowed, showLive, showNotices } from "./live.js";
import { makeEntry, makeMenu } from "./menu.js";
import { findPage, findView, listActions, listPages, listViews } from "./registry.js";
import { makeLegend, makeStrip } from "./strip.js";
import { drawSessions } from "./sessions.js";
import { showTour } from "./tour.js";
import { registerViews } from "./views.js";

const main = document.getElementById("main");
let page = null; // what is drawn now, for the keys
let turn = 0; // of two drawings at a time only the later one is shown

async function draw() {
  const address = readAddress();
  const own = (turn += 1);
  main.setAttribute("aria-busy", "true");
  try {
    if (address.session) await drawSession(address, () => own === turn);
    else if (findPage(address.page)) await drawPage(address, () => own === turn);
    else await drawList(address, () => own === turn);
  } catch (error) {
    if (own === turn) showProblem(error);
  }
  if (own === turn) main.removeAttribute("aria-busy");
}

function showProblem(error) {
  page = null;
  const retry = button("Try again", draw);
  replace(main, h("div", { class: "problem", role: "alert" }, h("h1", {}, "That cannot be shown"), h("p", {}, error.message), h("div", { class: "buttons" }, retry, h("a", { class: "button", href: "#/" }, "All sessions"))));
}

async function drawList(address, isCurrent) {
  const search = await drawSessions({ main, address, isCurrent });
  if (!isCurrent()) return;
  page = { kind: "sessions", search };
  setCrumbs([], "");
  showTour(null, address);
  document.title = "lamina inspector";
}

async function drawPage(address, isCurrent) {
  const shown = findPage(address.page);
  page = { kind: "page" };
  setCrumbs([], shown.name);
  document.title = `${shown.title} · lamina inspector`;
  await shown.draw({ main, address, isCurrent });
}

async function drawSession(address, isCurrent) {
  const session = await get(`session/${address.session}`, address.settings);
  if (!isCurrent()) return;
  const words = session.session.first_words || session.session.name;
  setCrumbs([[words, writeAddress({ ...address, segment: null })]], "");
  document.title = `${words} · lamina inspector`;
  const span = readSpan(session, address);
  const isSame = page && page.session === session && page.body.isConnected && page.span === JSON.stringify(span);
  if (!isSame) page = drawFrame(session, address, words, span);
  const selected = chooseRequest(session, address.request);
  page.selected = selected;
  page.strip.select(selected);
  showLive(page.live, session, selected, (number) => go({ request: number, segment: null }));
  if (address.view !== "visible") page.strip.show(null);
  const view = findView(address.view);
  const makeTab = ({ name, title }) => button(title, () => go({ view: name }), { role: "tab", "data-view": name, "aria-selected": String(name === view.name) });
  replace(page.tabs, listViews().map(makeTab));
  await view.draw({ body: page.body, session, strip: page.strip, address: { ...address, request: selected }, isCurrent });
  if (isCurrent()) showTour(session, address);
}

// New requests came: the strip and the figures show them. What somebody reads stays where it is, unless the page follows.
async function update() {
  const address = readAddress();
  if (!page || page.kind !== "session" || !address.session) {
    draw();
    return;
  }
  const lastSeen = page.session.calls[page.session.calls.length - 1].number;
  const session = await get(`session/${address.session}`, address.settings);
  // Meanwhile the page may have been drawn anew, with this very session or with another one.
  if (!page || page.kind !== "session" || readAddress().session !== address.session || !session.calls.length) return;
  const last = session.calls[session.calls.length - 1].number;
  showNotices(findNotices(session, lastSeen));
  if (isFollowed() && page.selected !== last) {
    go({ request: last, segment: null });
    return;
  }
  if (page.session !== session) {
    page.session = session;
    page.fillHead(session);
    page.strip.select(page.selected);
  }
  showLive(page.live, session, page.selected, (number) => go({ request: number, segment: null }));
}

// A span of requests that somebody chose; null for the whole session.
function readSpan(session, address) {
  if (address.from === null || address.to === null) return null;
  const span = { from: Number(address.from), to: Number(address.to) };
  return session.calls.some((call) => call.number >= span.from && call.number <= span.to) ? span : null;
}

// The request of the address, else the last one. Of a long session only some requests may be built.
function chooseRequest(session, wanted) {
  const numbers = session.calls.map((call) => call.number);
  const last = numbers[numbers.length - 1];
  if (wanted === null) return last;
  return numbers.find((number) => number >= wanted) ?? last;
}

function drawFrame(session, address, words, span) {
  const body = h("div", { class: "view" });
  const tabs = h("div", { class: "view-tabs", role: "tablist", "aria-label": "Views of this session" });
  const head = h("section", { class: "session-head" });
  const figure = h("figure", { class: "figure" });
  const live = h("div", { class: "live-line" });
  const frame = { kind: "session", body, tabs, live, session, span: JSON.stringify(span), strip: null };
  frame.fillHead = (current) => {
    const shown = { session: current, address };
    const entries = listActions("session", shown).map((action) => makeEntry(action, shown));
    replace(
      head,
      h("div", { class: "title-line" }, h("h1", { title: words }, words), live, makeMenu("Session", [makeSettings(current, address), entries], { id: "session-menu" })),
      makeFigures(current, span),
      h("p", { class: "faint small facts-line" }, describeFacts(current)),
    );
    frame.strip = makeStrip(current, {
      selected: frame.selected ?? null,
      chosen: span,
      onSelect: (at) => go({ request: at, segment: null }),
      onLane: (id, at) => go({ session: id, request: at, segment: null, view: "request", from: null, to: null }),
      onSpan: (chosen) => go({ from: chosen ? String(chosen.from) : null, to: chosen ? String(chosen.to) : null }),
    });
    replace(figure, frame.strip.element, makeZoom(frame, span));
  };
  frame.fillHead(session);
  replace(main, head, figure, h("div", { class: "tab-line" }, tabs, makeLegend()), body);
  return frame;
}

function makeZoom(frame, span) {
  const zoom = (words, factor, label) => button(words, () => frame.strip.zoom(factor), { class: "quiet", "aria-label": label, title: label });
  return h("div", { class: "zoom", role: "group", "aria-label": "Zoom" }, zoom("+", 0.5, "Fewer requests"), zoom("−", 2, "More requests"), span ? zoom("whole session", 0, "The whole session") : null);
}

// The frame.

function setCrumbs(crumbs, pageName) {
  const links = [["Sessions", "#/", pageName === "" && !crumbs.length], ...listPages().map(({ name, title }) => [title, `#/p/${encodeURIComponent(name)}`, name === pageName])];
  const nav = links.map(([words, address, isHere]) => h("a", { href: address, "aria-current": isHere ? "page" : null }, words));
  replace(document.getElementById("crumbs"), nav, crumbs.map(([words, address]) => [h("span", { "aria-hidden": "true" }, "›"), h("a", { class: "crumb", href: address, "aria-current": "page" }, words)]));
}

const KEYS = [
  ["j", "the next request"],
  ["k", "the request before"],
  ["← →", "through the requests, when the strip has the focus"],
  ["↑ ↓", "through the entries, when the list has the focus"],
  ["+ − 0", "fewer requests, more, or all of them, when the strip has the focus"],
  ["/", "search"],
  ["1 … 9", "the views of a session"],
  ["g", "all sessions"],
  ["Esc", "close the message"],
  ["?", "this help"],
];

function showHelp() {
  const dialog = document.getElementById("help-dialog");
  replace(
    dialog,
    h("h2", { id: "help-title" }, "Keys"),
    h("dl", { class: "inline keys" }, KEYS.map(([key, words]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, words)])),
    h("p", {}, "Every view has an address of its own: copy it from the address bar. Every figure is also JSON, under /api."),
    button("Close", () => dialog.close()),
  );
  if (!dialog.open) dialog.showModal();
}

const ACTIONS = {
  "?": showHelp,
  g: () => go({ page: null, session: null, request: null, segment: null, view: "request", text: "", settings: Object.fromEntries(SETTINGS.map((name) => [name, ""])) }),
  Escape: () => readAddress().segment && go({ segment: null }),
  "/": () => (page && page.search ? page.search.focus() : go({ view: "visible" })),
  j: () => step(1),
  k: () => step(-1),
};

function step(move) {
  if (!page || page.kind !== "session") return;
  const calls = page.session.calls;
  const next = calls[calls.findIndex((call) => call.number === page.selected) + move];
  if (!next) return;
  page.selected = next.number; // the next key counts from here, also if it comes before the request is drawn
  go({ request: next.number, segment: null });
  say(`Request ${number(next.number + 1)}`);
}

document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const view = listViews()[Number(event.key) - 1];
  const action = view && page && page.kind === "session" ? () => go({ view: view.name }) : ACTIONS[event.key];
  if (!action) return;
  if (event.key === "/") event.preventDefault();
  action();
});

document.getElementById("help").addEventListener("click", showHelp);
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = getComputedStyle(root).getPropertyValue("--dark").trim() === "1";
  root.dataset.theme = isDark ? "light" : "dark";
  page = null;
  draw();
});
window.addEventListener("hashchange", draw);
if (!isSaved) {
  followFiles(update, (isConnected) => {
    document.getElementById("offline").hidden = isConnected;
  });
}
registerViews();
draw();
