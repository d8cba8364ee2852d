// The page: reads the address, asks for the view, draws it. Every view has an address of its own.
import { ask, followSessions, get, isSaved } from "./api.js";
import { go, linkTo, readAddress } from "./address.js";
import { button, copy, download, h, number, plural, replace, say, tokens } from "./dom.js";
import { describeSum, listCounts, makeLegend, makePicture } from "./picture.js";
import { drawAlternatives } from "./whatif.js";
import { drawCompare } from "./compare.js";
import { drawRequest } from "./request.js";
import { drawRequests } from "./requests.js";
import { drawSessions } from "./sessions.js";

const VIEWS = [
  { name: "request", title: "Request", draw: drawRequest },
  { name: "requests", title: "Requests", draw: drawRequests },
  { name: "compare", title: "Compare", draw: drawCompare },
  { name: "whatif", title: "What if", draw: drawAlternatives },
];
const RUNNING = 120; // seconds after its last request in which a session counts as running

const main = document.getElementById("main");
let page = null; // what is drawn now, for the keys
let turn = 0; // of two drawings at a time only the later one is shown
let isFollowing = false;

async function draw() {
  const address = readAddress();
  const own = (turn += 1);
  const isCurrent = () => own === turn;
  main.setAttribute("aria-busy", "true");
  try {
    if (address.session) await drawSession(address, isCurrent);
    else {
      page = null;
      document.title = "lamina inspector";
      await drawSessions({ main, address, isCurrent });
    }
  } catch (error) {
    if (isCurrent()) showProblem(error);
  }
  if (isCurrent()) main.removeAttribute("aria-busy");
}

function showProblem(error) {
  page = null;
  replace(main, h("div", { class: "problem", role: "alert" }, h("h1", {}, "That cannot be shown"), h("p", {}, error.message), h("div", { class: "buttons" }, button("Try again", draw), h("a", { class: "button", href: "#/" }, "All sessions"))));
}

async function drawSession(address, isCurrent) {
  const session = await get(`session/${address.session}`);
  if (!isCurrent()) return;
  const words = session.session.first_words || session.session.name;
  document.title = `${words} · lamina inspector`;
  if (!page || page.id !== address.session || !page.body.isConnected) page = await drawFrame(session, words);
  if (page.session !== session) fillHead(page, session, words);
  // The request of the address, else the most expensive event.
  const selected = address.request ?? session.totals.opens_at;
  page.selected = selected;
  page.picture.select(selected);
  showLive(session);
  const view = VIEWS.find(({ name }) => name === address.view) || VIEWS[0];
  replace(page.tabs, VIEWS.map(({ name, title }) => button(title, () => go({ view: name }), { role: "tab", "data-view": name, "aria-selected": String(name === view.name) })));
  await view.draw({ body: page.body, session, address: { ...address, request: selected }, isCurrent });
}

async function drawFrame(session, words) {
  const frame = {
    id: session.session.id,
    head: h("section", { class: "session-head" }),
    live: h("div", { class: "live-line" }),
    tabs: h("div", { class: "view-tabs", role: "tablist", "aria-label": "Views of this session" }),
    body: h("div", { class: "view" }),
  };
  fillHead(frame, session, words);
  const { left_out } = isSaved ? await get("sessions") : {};
  replace(main, left_out ? h("p", { class: "faint", id: "left-out" }, left_out) : null, h("p", { class: "small" }, h("a", { href: "#/" }, "All sessions")), frame.head, h("div", { class: "tab-line" }, frame.tabs, makeLegend()), frame.body);
  return frame;
}

function fillHead(frame, session, words) {
  frame.session = session;
  frame.picture = makePicture(session, {
    selected: frame.selected,
    onSelect: (at) => go({ request: at, segment: null }),
    onLane: (id, at) => go({ session: id, request: at, segment: null, view: "request" }),
  });
  const { id, source, model, project } = session.session;
  const facts = [project, source, model || "model not recorded", `cache rules of ${session.rules}`];
  if (session.unrecorded) facts.push(`system text and tools not recorded, about ${tokens(session.unrecorded)} tokens`);
  const save = async (values, name) => download(name, await (await ask(`save/${id}`, values)).text());
  const links = session.relatives.map((each) => [each.is_parent ? " part of " : " goes on in ", h("a", { href: linkTo(each.id) }, each.first_words.slice(0, 40) || each.name)]);
  replace(
    frame.head,
    h(
      "div",
      { class: "title-line" },
      h("h1", { title: words }, words),
      frame.live,
      isSaved
        ? null
        : h("div", { class: "buttons" }, button("Copy link", () => copy(location.href)), button("Save as one page", () => save({}, "session.html"), { id: "save" }), button("Save redacted", () => save({ redact: "1" }, "session-redacted.html"), { id: "save-redacted", title: "Names and sizes stay; every text becomes a mark" })),
    ),
    h("figure", { class: "figure" }, frame.picture.element),
    h("p", { class: "small figures" }, [...listCounts(session), describeSum(session.totals)].filter(Boolean).join(" · ")),
    h("p", { class: "faint small" }, facts.filter(Boolean).join(" · "), isSaved ? null : links),
  );
}

// A session that is running: how many requests are new, and whether the page follows. What one reads does not move.
function showLive(session) {
  const last = session.calls[session.calls.length - 1];
  const isRunning = !isSaved && Date.now() / 1000 - (last.at || 0) - last.last < RUNNING;
  const newer = session.calls.filter((call) => call.number > page.selected).length;
  const follow = () => {
    isFollowing = !isFollowing;
    go(isFollowing ? { request: last.number, segment: null } : {});
    showLive(session);
  };
  replace(
    page.live,
    isRunning ? [h("span", { class: "live" }, "live"), button(isFollowing ? "Following" : "Follow", follow, { class: "chip", id: "follow", "aria-pressed": String(isFollowing), title: "Always show the newest request" })] : null,
    isRunning && newer && !isFollowing ? button(`${plural(newer, "newer request")} ↓`, () => go({ request: last.number, segment: null }), { class: "chip", id: "newer" }) : null,
  );
}

// Something was recorded. What somebody reads stays where it is, unless the page follows.
async function update() {
  if (!page) {
    draw();
    return;
  }
  const session = await get(`session/${page.id}`);
  if (!page || page.id !== session.session.id) return; // another one was opened meanwhile
  const last = session.calls[session.calls.length - 1].number;
  if (isFollowing && page.selected !== last) {
    go({ request: last, segment: null });
    return;
  }
  const selected = page.selected;
  fillHead(page, session, session.session.first_words || session.session.name);
  page.picture.select(selected);
  showLive(session);
}

// The frame.

const KEYS = [
  ["j", "the next request"],
  ["k", "the request before"],
  ["← →", "through the requests, when the picture has the focus"],
  ["↑ ↓", "through the entries, when the list has the focus"],
  ["/", "search"],
  ["1 … 4", "the views of a session"],
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
  g: () => (location.hash = "#/"),
  Escape: () => readAddress().segment && go({ segment: null }),
  "/": search,
  j: () => step(1),
  k: () => step(-1),
};

async function search() {
  if (page) {
    location.hash = "#/";
    await new Promise((done) => window.addEventListener("hashchange", () => setTimeout(done, 100), { once: true }));
  }
  const input = document.getElementById("search");
  if (input) input.focus();
}

function step(move) {
  if (!page || !page.session.calls[page.selected + move]) return;
  page.selected += move; // the next key counts from here, also if it comes before the request is drawn
  go({ request: page.selected, segment: null });
  say(`Request ${number(page.selected + 1)}`);
}

document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const view = VIEWS[Number(event.key) - 1];
  const action = view && page ? () => go({ view: view.name }) : ACTIONS[event.key];
  if (!action) return;
  if (event.key === "/") event.preventDefault();
  action();
});

document.getElementById("help").addEventListener("click", showHelp);
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = getComputedStyle(root).getPropertyValue("--dark").trim() === "1";
  root.dataset.theme = isDark ? "light" : "dark";
});
window.addEventListener("hashchange", draw);
followSessions(update, (isConnected) => {
  document.getElementById("offline").hidden = isConnected;
});
draw();
