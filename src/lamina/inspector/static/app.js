// The page: reads the address, asks for the view, draws it. Every view has an address of its own.
import { exportAddress, followFiles, get, isSaved } from "./api.js";
import { date, h, money, number, percent, replace, say, span, tokens, withQuestionMark } from "./dom.js";
import { FORMS, LAYERS } from "./colours.js";
import { makeLegend, makeStrip } from "./strip.js";
import { makeList, makeMap } from "./map.js";
import { makeSegmentPane } from "./segment.js";

const main = document.getElementById("main");
const SETTINGS = ["policy", "window", "target", "trigger", "keep_last", "rules", "pinned", "left_out"];
const VIEWS = { request: "Request", compare: "Compare", whatif: "What if", visible: "Was it visible?", totals: "Totals" };
let page = null; // what is drawn now, for the keys

function readAddress() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const words = path.split("/").filter(Boolean);
  const asked = new URLSearchParams(query);
  const settings = {};
  for (const name of SETTINGS) settings[name] = asked.get(name) || "";
  return {
    session: words[0] === "s" ? words[1] : null,
    request: words[2] === "r" ? Number(words[3]) : null,
    segment: words[4] === "seg" ? decodeURIComponent(words.slice(5).join("/")) : null,
    view: asked.get("view") || "request",
    tab: asked.get("tab") || "Sent",
    before: asked.get("before"),
    text: asked.get("text") || "",
    search: asked.get("search") || "",
    sort: asked.get("sort") || "order",
    settings,
  };
}

function writeAddress(address) {
  const words = ["#"];
  if (address.session) words.push("s", address.session);
  if (address.session && address.request !== null) words.push("r", String(address.request));
  if (address.segment) words.push("seg", encodeURIComponent(address.segment));
  const query = new URLSearchParams();
  if (address.view !== "request") query.set("view", address.view);
  if (address.tab !== "Sent") query.set("tab", address.tab);
  if (address.sort !== "order") query.set("sort", address.sort);
  for (const name of ["before", "text", "search"]) if (address[name]) query.set(name, address[name]);
  for (const [name, value] of Object.entries(address.settings)) if (value) query.set(name, value);
  return words.join("/") + withQuestionMark(query);
}

function go(changes) {
  const address = { ...readAddress(), ...changes };
  location.hash = writeAddress(address);
}

async function draw() {
  const address = readAddress();
  main.setAttribute("aria-busy", "true");
  try {
    if (address.session) await drawSession(address);
    else await drawSessions(address);
  } catch (error) {
    replace(main, h("div", { class: "problem", role: "alert" }, h("h1", {}, "That cannot be shown"), h("p", {}, error.message), h("p", {}, h("a", { href: "#/" }, "All sessions"))));
  }
  main.removeAttribute("aria-busy");
}

// All sessions.

async function drawSessions(address) {
  const list = await get("sessions", {}, { search: address.search });
  setCrumbs([]);
  document.title = "lamina inspector";
  if (list.sessions.length === 1 && isSaved && !address.search) {
    go({ session: list.sessions[0].id });
    return;
  }
  const parents = new Set(list.sessions.map((session) => session.name));
  const children = list.sessions.filter((session) => session.parent && parents.has(session.parent));
  const roots = list.sessions.filter((session) => !children.includes(session));
  const rows = [];
  for (const session of roots) {
    rows.push(sessionRow(session, false));
    for (const child of children.filter((each) => each.parent === session.name)) rows.push(sessionRow(child, true));
  }
  const known = list.sessions.filter((session) => session.dollars !== null);
  const cost = known.reduce((sum, session) => sum + session.dollars, 0);
  const search = h("input", { type: "search", id: "search", value: address.search, placeholder: "Search in everything that was said", "aria-label": "Search in all sessions" });
  page = { kind: "sessions", search };
  replace(
    main,
    h(
      "section",
      { class: "intro" },
      h("h1", {}, "Sessions"),
      h("p", { class: "lead" }, `${list.sessions.length} sessions · ${number(list.sessions.reduce((sum, session) => sum + session.calls, 0))} requests${known.length ? ` · ${money(cost)} as reported, at prices of ${list.prices_as_of}` : ""}`),
      h("form", { class: "search", onsubmit: (event) => { event.preventDefault(); go({ search: search.value.trim() }); } }, search, h("button", { type: "submit" }, "Search")),
    ),
    list.sessions.length
      ? h(
          "div",
          { class: "scroll" },
          h(
            "table",
            { class: "sessions" },
            h("thead", {}, h("tr", {}, ["Session", "Model", "Last request", "Requests", "Largest", "Cost", "Lost caches"].map((name, at) => h("th", { scope: "col", class: at > 2 ? "num" : null }, name)))),
            h("tbody", {}, rows),
          ),
        )
      : h("p", { class: "empty" }, address.search ? `Nothing contains “${address.search}”.` : "There is no session here yet. It will appear as soon as one is recorded."),
    list.problems.length
      ? h("details", { class: "problems" }, h("summary", {}, `${list.problems.length} records could not be read`), h("ul", {}, list.problems.map((problem) => h("li", {}, h("code", {}, problem.place), ` ${problem.reason}`))))
      : null,
  );
}

function sessionRow(session, isChild) {
  return h(
    "tr",
    { class: isChild ? "child" : null },
    h(
      "td",
      {},
      h("a", { href: `#/s/${session.id}` }, isChild ? "↳ " : "", session.first_words || session.name),
      h("div", { class: "faint" }, session.source ? `${session.source} · ` : "", session.name),
    ),
    h("td", {}, session.model || "not recorded"),
    h("td", { class: "nowrap" }, date(session.ended)),
    h("td", { class: "num" }, number(session.calls)),
    h("td", { class: "num" }, session.tokens === null ? "not recorded" : tokens(session.tokens)),
    h("td", { class: "num" }, session.dollars === null ? "–" : money(session.dollars)),
    h("td", { class: "num" }, session.lost_caches || "–"),
  );
}

// One session.

async function drawSession(address) {
  const session = await get(`session/${address.session}`, address.settings);
  const last = session.calls.length - 1;
  const selected = address.request === null ? last : Math.min(address.request, last);
  const words = session.session.first_words || session.session.name;
  setCrumbs([[words, writeAddress({ ...address, segment: null })]]);
  document.title = `${words} · lamina inspector`;
  const isSame = page && page.kind === "session" && page.key === sessionKey(address);
  if (!isSame) {
    const strip = makeStrip(session, { selected, onSelect: (at) => go({ request: at, segment: null }) });
    const body = h("div", { class: "view" });
    const tabs = h("div", { class: "view-tabs", role: "tablist", "aria-label": "Views of this session" });
    page = { kind: "session", key: sessionKey(address), strip, body, tabs, session };
    replace(
      main,
      h("section", { class: "session-head" }, h("div", {}, h("h1", {}, words), h("p", { class: "faint" }, factsOf(session))), controls(session, address)),
      cards(session),
      h("figure", { class: "figure" }, strip.element, makeLegend(session)),
      tabs,
      body,
    );
  }
  page.selected = selected;
  page.session = session;
  page.strip.select(selected);
  if (address.view !== "visible") page.strip.show(null);
  replace(
    page.tabs,
    Object.entries(VIEWS).map(([name, title]) =>
      h("button", { type: "button", role: "tab", "aria-selected": String(name === address.view), onclick: () => go({ view: name }) }, title),
    ),
  );
  await DRAW[address.view](page.body, session, { ...address, request: selected });
}

const sessionKey = (address) => JSON.stringify([address.session, address.settings]);

function factsOf(session) {
  const summary = session.session;
  const facts = [summary.source, summary.model || "model not recorded", `${session.calls.length} requests`, `rules of ${session.rules}`];
  if (!session.head_recorded) facts.push("system text and tools not recorded");
  return facts.filter(Boolean).join(" · ");
}

function cards(session) {
  const totals = session.totals;
  const all = totals.read + totals.written + totals.uncached;
  const simulated = session.calls.some((call) => call.simulated);
  const values = [
    ["Cost", money(totals.dollars), simulated ? "simulated by the rules" : "as reported"],
    ["Read from the cache", percent(totals.read, all), `${tokens(totals.read)} of ${tokens(all)}`],
    ["Largest request", tokens(totals.largest), `window ${tokens(session.window)}`],
    ["Cuts", number(totals.cuts), totals.failed ? `${totals.failed} requests do not fit` : "all requests fit"],
    ["Prefix lost", number(totals.broken), totals.broken ? "see ▼ in the strip" : "every request continues the last"],
  ];
  return h("dl", { class: "cards" }, values.map(([name, value, note]) => h("div", {}, h("dt", {}, name), h("dd", {}, value), h("dd", { class: "note" }, note))));
}

function controls(session, address) {
  if (isSaved) return h("p", { class: "faint" }, "A saved page: other settings need lamina inspect.");
  const settings = address.settings;
  const change = (name) => (event) => go({ settings: { ...settings, [name]: event.target.value }, segment: null });
  const isLamina = settings.policy === "lamina";
  return h(
    "form",
    { class: "controls", onsubmit: (event) => event.preventDefault() },
    h(
      "div",
      { class: "switch", role: "group", "aria-label": "What to show" },
      h("button", { type: "button", "aria-pressed": String(!isLamina), onclick: () => go({ settings: { ...settings, policy: "" }, segment: null }) }, "As recorded"),
      h("button", { type: "button", "aria-pressed": String(isLamina), onclick: () => go({ settings: { ...settings, policy: "lamina" }, segment: null }) }, "Under lamina"),
    ),
    isLamina && h("label", {}, "window", h("input", { type: "number", min: "1000", step: "1000", value: settings.window || String(session.window), onchange: change("window") })),
    h("label", {}, "rules", h("select", { onchange: change("rules") }, ["", ...session.all_rules].map((name) => h("option", { value: name, selected: name === settings.rules }, name || "of its model")))),
  );
}

const DRAW = {
  request: drawRequest,
  compare: drawCompare,
  whatif: drawWhatIf,
  visible: drawVisible,
  totals: drawTotals,
};

let chips = new Set();

async function drawRequest(body, session, address) {
  const request = await get(`request/${address.session}/${address.request}`, address.settings);
  const call = request.call;
  if (call.error) {
    replace(body, h("div", { class: "problem" }, h("h2", {}, `Request ${call.number + 1} is not possible`), h("p", {}, call.error)));
    return;
  }
  const selected = address.segment;
  const onSelect = (ref) => go({ segment: ref, request: address.request });
  const kinds = [...new Set(request.entries.map((entry) => entry.kind))].sort();
  chips = new Set([...chips].filter((chip) => kinds.includes(chip) || chip in LAYERS || chip in FORMS));
  const filter = (entry) => chips.size === 0 || chips.has(entry.kind) || chips.has(entry.form) || chips.has(entry.layer);
  const map = makeMap(request, { selected, onSelect });
  const list = makeList(request, { selected, onSelect, sort: address.sort, filter });
  const chip = (name, title) =>
    h("button", {
      type: "button", class: "chip", "aria-pressed": String(chips.has(name)),
      onclick: () => { if (chips.has(name)) chips.delete(name); else chips.add(name); drawRequest(body, session, address); },
    }, title);
  const side = h("div", { class: "side" });
  replace(
    body,
    h(
      "div",
      { class: "request-head" },
      h("h2", {}, `Request ${call.number + 1}`, h("span", { class: "faint" }, ` of ${session.calls.length} · ${date(call.at)}${call.idle > 60 ? ` · after ${span(call.idle)}` : ""}`)),
      h("p", {}, requestSentence(request)),
      h(
        "div",
        { class: "buttons" },
        h("button", { type: "button", disabled: call.number === 0, onclick: () => go({ request: call.number - 1, segment: null }) }, "← earlier"),
        h("button", { type: "button", disabled: call.number === session.calls.length - 1, onclick: () => go({ request: call.number + 1, segment: null }) }, "later →"),
        h("button", { type: "button", onclick: () => go({ sort: address.sort === "size" ? "order" : "size" }) }, address.sort === "size" ? "In order" : "Largest first"),
        !isSaved && h("a", { class: "button", href: exportAddress("export", [address.session, call.number], address.settings), download: "" }, "Request as JSON"),
      ),
      h("div", { class: "chips", role: "group", "aria-label": "Show only" }, kinds.map((kind) => chip(kind, kind)), Object.entries(FORMS).map(([form, look]) => chip(form, `${look.glyph} ${look.words}`))),
    ),
    h("div", { class: "columns" }, map.element, list.element, side),
  );
  list.select(selected);
  if (selected) await drawSegment(side, address);
  else replace(side, requestFacts(request));
}

function requestSentence(request) {
  const call = request.call;
  const parts = [`${number(call.tokens)} tokens in ${number(call.entries)} entries.`];
  if (call.left_out) parts.push(`${number(call.left_out)} segments are left out.`);
  if (call.cut) parts.push(`Here lamina made a cut (${call.cut}) and lowered ${number(call.cut_lowered)} segments.`);
  if (!call.continues && !call.cut) parts.push("It does not continue the request before it, so the cached prefix was lost.");
  return parts.join(" ");
}

function requestFacts(request) {
  const largest = [...request.entries].filter((entry) => entry.form !== "OMITTED").sort((one, other) => other.tokens - one.tokens).slice(0, 8);
  const left = [...request.entries].filter((entry) => entry.form !== "FULL" && !entry.own).sort((one, other) => other.full_tokens - one.full_tokens).slice(0, 8);
  return h(
    "section",
    { class: "pane" },
    h("h3", {}, "What is largest"),
    h("ol", { class: "ranked", id: "largest" }, largest.map((entry) => h("li", {}, h("button", { type: "button", class: "link", onclick: () => go({ segment: entry.ref }) }, nameOf(entry)), h("span", { class: "num" }, `${number(entry.tokens)}`)))),
    h("h3", {}, "What the model did not see"),
    left.length
      ? h("ol", { class: "ranked", id: "unseen" }, left.map((entry) => h("li", {}, h("button", { type: "button", class: "link", onclick: () => go({ segment: entry.ref }) }, nameOf(entry)), h("span", { class: "faint" }, ` ${FORMS[entry.form].words}`), h("span", { class: "num" }, number(entry.full_tokens)))))
      : h("p", { class: "empty", id: "unseen" }, "Nothing: everything was sent in full."),
    request.notes.length ? [h("h3", {}, "Notes"), h("ul", {}, request.notes.map((note) => h("li", {}, note)))] : null,
  );
}

function nameOf(entry) {
  const name = entry.what || entry.kind;
  return name.includes(" ") ? name : `${name} ${entry.preview.slice(0, 50)}`;
}

async function drawSegment(side, address) {
  try {
    const segment = await get(`segment/${address.session}/${address.request}/${encodeURIComponent(address.segment)}`, address.settings);
    const pane = makeSegmentPane(segment, {
      tab: address.tab,
      onTab: (tab) => { history.replaceState(null, "", writeAddress({ ...readAddress(), tab })); },
      onWhatIf: isSaved ? null : (name, key) => go({ view: "whatif", settings: { ...address.settings, policy: "lamina", [name]: key } }),
    });
    pane.addEventListener("click", (event) => {
      const link = event.target.closest(".to-request");
      if (!link) return;
      event.preventDefault();
      go({ request: Number(link.dataset.request) });
    });
    replace(side, h("button", { type: "button", class: "close quiet", onclick: () => go({ segment: null }) }, "✕ close"), pane);
  } catch (error) {
    replace(side, h("p", { class: "problem" }, error.message));
  }
}

async function drawCompare(body, session, address) {
  const after = address.request;
  const before = address.before === null ? Math.max(after - 1, 0) : Number(address.before);
  if (session.calls.length < 2) {
    replace(body, h("p", { class: "empty" }, "There is only one request, so there is nothing to compare."));
    return;
  }
  const answer = await get(`compare/${address.session}/${before}/${after}`, address.settings);
  const pick = (name, value, apply) =>
    h("label", {}, name, h("select", { onchange: (event) => apply(Number(event.target.value)) }, session.calls.map((call) => h("option", { value: String(call.number), selected: call.number === value }, `request ${call.number + 1}`))));
  const shared = answer.sides[0].shared;
  replace(
    body,
    h("div", { class: "request-head" }, h("h2", {}, "Why does this request differ?"), h("form", { class: "controls" }, pick("from", before, (value) => go({ before: String(value) })), pick("to", after, (value) => go({ request: value })))),
    h(
      "div",
      { class: "verdict", id: "verdict" },
      h("p", { class: "sentence" }, answer.cause === "none" ? "The later request continues the earlier one: nothing that was sent has changed." : `${capital(answer.sentence)}.`),
      answer.advice ? h("p", {}, answer.advice) : null,
      h(
        "dl",
        { class: "inline" },
        h("dt", {}, "cause"), h("dd", {}, answer.cause),
        h("dt", {}, "place"), h("dd", {}, answer.was || answer.entry || "–"),
        h("dt", {}, "byte"), h("dd", {}, number(answer.offset)),
        h("dt", {}, "kept"), h("dd", {}, `${number(answer.kept)} tokens`),
        h("dt", {}, "lost"), h("dd", {}, `${number(answer.lost)} tokens`),
        h("dt", {}, "price"), h("dd", {}, money(answer.price)),
        answer.gap ? [h("dt", {}, "time between"), h("dd", {}, span(answer.gap))] : null,
      ),
    ),
    h("p", { class: "faint" }, `${shared} messages are the same. From there on:`),
    h("div", { class: "scroll" }, h("table", { class: "sides" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "#"), h("th", { scope: "col" }, `request ${before + 1}`), h("th", { scope: "col" }, `request ${after + 1}`))), h("tbody", {}, answer.sides.slice(1).map((row) => h("tr", {}, h("td", { class: "num" }, row.at), sideCell(row.before), sideCell(row.after)))))),
  );
}

const capital = (text) => text.slice(0, 1).toUpperCase() + text.slice(1).replace(/\.$/, "");
const sideCell = (message) => h("td", {}, message ? [h("strong", {}, message.role), h("pre", { class: "text small" }, message.text)] : h("span", { class: "faint" }, "not there"));

async function drawWhatIf(body, session, address) {
  if (isSaved) {
    replace(body, h("p", { class: "empty" }, "A saved page cannot build the session anew. Open it with lamina inspect."));
    return;
  }
  const settings = { ...address.settings, policy: "lamina" };
  const answer = await get(`whatif/${address.session}`, settings);
  const field = (name, title, attributes) =>
    h("label", {}, title, h("input", { ...attributes, id: `whatif-${name}`, value: settings[name] || "", onchange: (event) => go({ settings: { ...address.settings, [name]: event.target.value } }) }));
  const rows = [
    ["Cost", money(answer.recorded.dollars), money(answer.other.dollars), change(answer.recorded.dollars, answer.other.dollars)],
    ["Tokens sent", tokens(answer.recorded.sent), tokens(answer.other.sent), change(answer.recorded.sent, answer.other.sent)],
    ["Read from the cache", tokens(answer.recorded.read), tokens(answer.other.read), ""],
    ["Largest request", tokens(answer.recorded.largest), tokens(answer.other.largest), change(answer.recorded.largest, answer.other.largest)],
    ["Cuts", number(answer.recorded.cuts), number(answer.other.cuts), ""],
    ["Prefix lost", number(answer.recorded.broken), number(answer.other.broken), ""],
    ["Requests over the window", number(answer.over_window), number(answer.other.failed), ""],
  ];
  replace(
    body,
    h("div", { class: "request-head" }, h("h2", {}, "What if?"), h("p", {}, "The recorded conversation is built again under these settings. Nothing is sent.")),
    h(
      "form",
      { class: "controls wide", onsubmit: (event) => event.preventDefault() },
      field("window", "window", { type: "number", min: "1000", step: "1000", placeholder: String(session.window) }),
      field("trigger", "trigger", { type: "number", min: "0.1", max: "1", step: "0.05", placeholder: "0.95" }),
      field("target", "target", { type: "number", min: "0.05", max: "0.95", step: "0.05", placeholder: "chosen" }),
      field("keep_last", "keep last", { type: "number", min: "0", step: "1", placeholder: "5" }),
      field("pinned", "pinned", { type: "text", placeholder: "none" }),
      field("left_out", "left out", { type: "text", placeholder: "none" }),
      h("button", { type: "button", onclick: () => go({ view: "request", settings, segment: null }) }, "Show these requests"),
    ),
    h("div", { class: "scroll" }, h("table", { class: "figures", id: "whatif" }, h("thead", {}, h("tr", {}, ["", "as recorded", "under these settings", ""].map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, rows.map(([name, ...cells]) => h("tr", {}, h("th", { scope: "row" }, name), cells.map((cell) => h("td", { class: "num" }, cell))))))),
    miniStrip(session, answer),
  );
}

function change(before, after) {
  if (!before || after === null) return "";
  const share = Math.round((100 * (after - before)) / before);
  return share === 0 ? "the same" : `${share > 0 ? "+" : "−"}${Math.abs(share)} %`;
}

function miniStrip(session, answer) {
  const strip = makeStrip({ ...session, calls: answer.calls, totals: answer.other, limits: answer.limits }, { selected: null, onSelect: (at) => go({ view: "request", request: at, settings: { ...readAddress().settings, policy: "lamina" } }) });
  return h("figure", { class: "figure" }, h("figcaption", {}, "The same session under these settings"), strip.element);
}

async function drawVisible(body, session, address) {
  const input = h("input", { type: "search", id: "visible-text", value: address.text, placeholder: "a text, a name or a path", "aria-label": "What to look for" });
  const form = h("form", { class: "search", onsubmit: (event) => { event.preventDefault(); go({ text: input.value.trim() }); } }, input, h("button", { type: "submit" }, "Look"));
  const head = h("div", { class: "request-head" }, h("h2", {}, "Was it visible?"), h("p", {}, "Where a text stood in what the model saw: in full, in part, or only behind a handle."), form);
  if (!address.text) {
    replace(body, head);
    return;
  }
  const answer = await get(`visible/${address.session}`, address.settings, { text: address.text });
  page.strip.show(answer.states);
  const here = answer.states[address.request];
  const words = { full: "It was visible in full", part: "It was visible in part", recall: "It was not visible, and would have had to be recalled", "": "It had not been said yet, or does not occur" };
  replace(
    body,
    head,
    h("p", { class: "sentence", id: "visible-answer" }, `${words[here]} at request ${address.request + 1}. It was visible at ${answer.visible} of ${session.calls.length} requests, and behind a handle at ${answer.hidden}.`),
    h("ul", { class: "legend" }, h("li", {}, h("span", { class: "swatch", style: { background: "#009e73" } }, "■"), "in full"), h("li", {}, h("span", { class: "swatch", style: { background: "#e69f00" } }, "▤"), "in part"), h("li", {}, h("span", { class: "swatch", style: { background: "var(--bad)" } }, "□"), "behind a handle")),
    h("ol", { class: "ranked" }, answer.matches.map((match) => h("li", {}, h("button", { type: "button", class: "link", onclick: () => go({ view: "request", segment: match.ref, request: Math.max(match.arrived, 0) }) }, match.what), h("span", { class: "faint" }, ` since request ${match.arrived + 1}`)))),
  );
}

async function drawTotals(body, session, address) {
  const request = await get(`request/${address.session}/${address.request}`, address.settings);
  const groups = request.groups;
  const block = (title, id, values, format = tokens) =>
    h("section", { class: "block" }, h("h3", {}, title), Object.keys(values || {}).length ? h("ol", { class: "ranked", id }, Object.entries(values).slice(0, 25).map(([name, value]) => h("li", {}, h("span", { class: "what" }, name), h("span", { class: "num" }, format(value))))) : h("p", { class: "empty", id }, "none"));
  const unused = session.tools.filter((tool) => tool.calls === 0);
  replace(
    body,
    h("div", { class: "request-head" }, h("h2", {}, `What request ${address.request + 1} is made of`), h("p", {}, "Tokens of what was sent, by kind, author, tool and path.")),
    h(
      "div",
      { class: "blocks" },
      block("By kind", "by-kind", groups.kind),
      block("By author", "by-author", groups.author),
      block("By tool", "by-tool", groups.tool),
      block("By path or command", "by-path", groups.path),
      block("Read again and again", "read-again", groups.read_again, (count) => `${count} times`),
      h("section", { class: "block" }, h("h3", {}, "Tools that were never called"), session.tools.some((tool) => tool.tokens !== null) ? (unused.length ? h("ol", { class: "ranked", id: "unused-tools" }, unused.map((tool) => h("li", {}, h("span", { class: "what" }, tool.name), h("span", { class: "num" }, `${number(tool.tokens)} tokens a request`)))) : h("p", { class: "empty", id: "unused-tools" }, "Every tool was called.")) : h("p", { class: "empty", id: "unused-tools" }, "Tool definitions are not recorded.")),
    ),
  );
}

// The frame.

function setCrumbs(crumbs) {
  replace(document.getElementById("crumbs"), crumbs.map(([words, address]) => [h("span", { "aria-hidden": "true" }, "›"), h("a", { href: address }, words)]));
}

function showHelp() {
  const dialog = document.getElementById("help-dialog");
  const keys = [["j / k", "the next or the last request"], ["↑ ↓", "through the entries, when the list has the focus"], ["/", "search"], ["g", "all sessions"], ["Esc", "close the segment"], ["?", "this help"]];
  replace(
    dialog,
    h("h2", { id: "help-title" }, "Keys"),
    h("dl", { class: "inline keys" }, keys.map(([key, words]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, words)])),
    h("p", {}, "Every view has an address of its own: copy it from the address bar. Every figure is also JSON, under /api."),
    h("button", { type: "button", onclick: () => dialog.close() }, "Close"),
  );
  dialog.showModal();
}

document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "?") showHelp();
  else if (event.key === "g") go({ session: null, request: null, segment: null, view: "request", settings: {} });
  else if (event.key === "Escape" && readAddress().segment) go({ segment: null });
  else if (event.key === "/") {
    event.preventDefault();
    if (page?.search) page.search.focus();
    else go({ view: "visible" });
  } else if ((event.key === "j" || event.key === "k") && page?.kind === "session") {
    const next = page.selected + (event.key === "j" ? 1 : -1);
    if (next >= 0 && next < page.session.calls.length) {
      go({ request: next, segment: null });
      say(`Request ${next + 1}`);
    }
  }
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
const live = followFiles(() => {
  const kept = page;
  page = null;
  draw().catch(() => { page = kept; });
});
if (live) {
  const sign = document.getElementById("live");
  live.onopen = () => { sign.hidden = false; };
  live.onerror = () => { sign.hidden = true; };
}
draw();
