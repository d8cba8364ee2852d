// The page: reads the address, asks for the view, draws it. Every view has an address of its own.
import { followFiles, get, isSaved, makeAddress } from "./api.js";
import { SETTINGS, go, readAddress, writeAddress } from "./address.js";
import { button, h, money, number, percent, plural, replace, say, tokens } from "./dom.js";
import { makeLegend, makeStrip } from "./strip.js";
import { drawSessions } from "./sessions.js";
import { drawRequest } from "./request.js";
import { drawCompare, drawTotals, drawVisible, drawWhatIf } from "./questions.js";

const main = document.getElementById("main");
const VIEWS = {
  request: ["Request", drawRequest],
  compare: ["Compare", drawCompare],
  whatif: ["What if", drawWhatIf],
  visible: ["Was it visible?", drawVisible],
  totals: ["Totals", drawTotals],
};
let page = null; // what is drawn now, for the keys
let turn = 0; // of two drawings at a time only the later one is shown

async function draw() {
  const address = readAddress();
  const own = (turn += 1);
  main.setAttribute("aria-busy", "true");
  try {
    if (address.session) await drawSession(address, () => own === turn);
    else await drawList(address);
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

async function drawList(address) {
  const search = await drawSessions(main, address);
  page = { kind: "sessions", search };
  setCrumbs([]);
  document.title = "lamina inspector";
}

async function drawSession(address, isCurrent) {
  const session = await get(`session/${address.session}`, address.settings);
  if (!isCurrent()) return;
  const selected = chooseRequest(session, address.request);
  const words = session.session.first_words || session.session.name;
  setCrumbs([[words, writeAddress({ ...address, segment: null })]]);
  document.title = `${words} · lamina inspector`;
  const isSame = page && page.session === session && page.body.isConnected;
  if (!isSame) page = drawFrame(session, address, words, selected);
  page.selected = selected;
  page.strip.select(selected);
  if (address.view !== "visible") page.strip.show(null);
  const view = address.view in VIEWS ? address.view : "request";
  const makeTab = ([name, [title]]) => button(title, () => go({ view: name }), { role: "tab", "data-view": name, "aria-selected": String(name === view) });
  replace(page.tabs, Object.entries(VIEWS).map(makeTab));
  await VIEWS[view][1]({ body: page.body, session, strip: page.strip, address: { ...address, request: selected } });
}

// The request of the address, else the last one. Of a long session only some requests may be built.
function chooseRequest(session, wanted) {
  const numbers = session.calls.map((call) => call.number);
  const last = numbers[numbers.length - 1];
  if (wanted === null) return last;
  return numbers.find((number) => number >= wanted) ?? last;
}

function drawFrame(session, address, words, selected) {
  const strip = makeStrip(session, {
    selected,
    onSelect: (at) => go({ request: at, segment: null }),
    onLane: (id, at) => go({ session: id, request: at, segment: null, view: "request" }),
  });
  const body = h("div", { class: "view" });
  const tabs = h("div", { class: "view-tabs", role: "tablist", "aria-label": "Views of this session" });
  replace(
    main,
    h("section", { class: "session-head" }, h("h1", {}, words), h("p", { class: "faint" }, factsOf(session)), makeControls(session, address)),
    makeCards(session),
    h("figure", { class: "figure" }, strip.element, makeLegend(session)),
    tabs,
    body,
  );
  return { kind: "session", strip, body, tabs, session };
}

function factsOf(session) {
  const summary = session.session;
  const facts = [summary.project, summary.source, summary.model || "model not recorded", plural(session.recorded_calls, "request"), `cache rules of ${session.rules}`];
  if (session.skipped) facts.push(`a long session: ${number(session.calls.length)} of its requests were built`);
  if (!session.head_recorded) {
    const size = session.unrecorded ? `, about ${tokens(session.unrecorded)} tokens` : "";
    facts.push(`system text and tools not recorded${size}`);
  }
  return facts.filter(Boolean).join(" · ");
}

function makeCards(session) {
  const totals = session.totals;
  const all = totals.read + totals.written + totals.uncached;
  const isSimulated = session.calls.some((call) => call.simulated);
  const largest = totals.largest + session.unrecorded;
  const values = [
    ["Cost", money(totals.dollars), isSimulated ? "simulated by the rules" : "as reported"],
    ["Read from the cache", percent(totals.read, all), `${tokens(totals.read)} of ${tokens(all)}`],
    ["Largest request", tokens(largest), `window ${tokens(session.window)}${session.unrecorded ? ", estimated" : ""}`],
    ["Cuts", number(totals.cuts + session.compacted.length), cutsNote(session)],
    ["Prefix lost", number(totals.broken), totals.broken ? "see ▼ and ✂ in the strip" : "every request continues the last"],
  ];
  return h("dl", { class: "cards" }, values.map(([name, value, note]) => h("div", {}, h("dt", {}, name), h("dd", {}, value), h("dd", { class: "note" }, note))));
}

function cutsNote(session) {
  if (session.totals.failed) return `${plural(session.totals.failed, "request")} too large`;
  if (session.compacted.length) return `${session.compacted.length} by the client itself`;
  return session.limits.room ? "all requests fit" : "nothing was left out";
}

function makeControls(session, address) {
  if (isSaved) return h("p", { class: "faint" }, "A saved page: other settings need lamina inspect.");
  const settings = address.settings;
  const isLamina = settings.policy === "lamina";
  const change = (name) => (event) => go({ settings: { ...settings, [name]: event.target.value }, segment: null });
  const choosePolicy = (policy) => () => go({ settings: { ...settings, policy }, segment: null });
  const option = (name) => h("option", { value: name, selected: name === settings.rules }, name || "of its model");
  return h(
    "form",
    { class: "controls", onsubmit: (event) => event.preventDefault() },
    h(
      "div",
      { class: "switch", role: "group", "aria-label": "What to show" },
      button("As recorded", choosePolicy(""), { "aria-pressed": String(!isLamina) }),
      button("Under lamina", choosePolicy("lamina"), { "aria-pressed": String(isLamina) }),
    ),
    isLamina && h("label", {}, "window", h("input", { type: "number", min: "1000", step: "1000", value: settings.window || String(session.window), onchange: change("window") })),
    h("label", {}, "cache rules", h("select", { onchange: change("rules") }, ["", ...session.all_rules].map(option))),
    h("a", { class: "button", href: makeAddress(`archive/${address.session}`, settings), download: "", title: "Every request of the session, as JSON" }, "Archive"),
  );
}

// The frame.

function setCrumbs(crumbs) {
  replace(document.getElementById("crumbs"), crumbs.map(([words, address]) => [h("span", { "aria-hidden": "true" }, "›"), h("a", { href: address }, words)]));
}

const KEYS = [
  ["j", "the next request"],
  ["k", "the request before"],
  ["← →", "through the requests, when the strip has the focus"],
  ["↑ ↓", "through the entries, when the list has the focus"],
  ["/", "search"],
  ["1 … 5", "the views of a session"],
  ["g", "all sessions"],
  ["Esc", "close the segment"],
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
  g: () => go({ session: null, request: null, segment: null, view: "request", text: "", settings: Object.fromEntries(SETTINGS.map((name) => [name, ""])) }),
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
  go({ request: next.number, segment: null });
  say(`Request ${next.number + 1}`);
}

document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const view = Object.keys(VIEWS)[Number(event.key) - 1];
  const action = view && page && page.kind === "session" ? () => go({ view }) : ACTIONS[event.key];
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
followFiles(draw, (isLive) => {
  document.getElementById("live").hidden = !isLive;
});
draw();
