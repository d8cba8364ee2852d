// The first page: the picture of the newest session, and the list of all of them.
import { get, isSaved } from "./api.js";
import { go, linkTo } from "./address.js";
import { atLeast, button, date, h, number, plural, replace, tokens } from "./dom.js";
import { describeSum, listCounts, makeLegend, makePicture } from "./picture.js";
import { makeSearchForm, showPlaces } from "./search.js";

const LIVE = 120; // seconds after its last request in which a session counts as running
const MORE = 100; // rows that are added to a long list at a time

let rows = MORE;

const COLUMNS = [
  ["", "Session", (session) => session.first_words || session.name],
  ["model", "Model", (session) => session.model],
  ["ended", "Last request", (session) => -(session.ended || 0)],
  ["calls", "Requests", (session) => -session.calls],
  ["tokens", "Largest", (session) => -(session.tokens || 0)],
  ["dollars", "Cost", (session) => -(session.dollars || 0)],
  ["cuts", "Cuts", (session) => -session.cuts],
  ["lost", "Lost caches", (session) => -session.lost_caches],
];

// A list that arrives late must not replace what was opened meanwhile: `isCurrent` says whether it still counts.
export async function drawSessions({ main, address, isCurrent }) {
  const list = await get("sessions", isSaved ? {} : { rows });
  if (!isCurrent()) return;
  if (list.sessions.length === 1 && isSaved) {
    go({ session: list.sessions[0].id });
    return;
  }
  const places = address.search ? await get("search", { text: address.search }) : null;
  const newest = list.sessions.find((session) => !session.parent) || list.sessions[0];
  const session = newest && !places ? await get(`session/${newest.id}`) : null;
  if (!isCurrent()) return;
  replace(
    main,
    list.left_out ? h("p", { class: "faint", id: "left-out" }, list.left_out) : null,
    session ? showNewest(session) : null,
    h("div", { class: "title-line" }, h("h1", {}, places ? "Places" : "Sessions"), isSaved ? null : makeSearchForm(address)),
    places ? showPlaces(places) : h("p", { class: "lead" }, sumUp(list)),
    places ? null : list.sessions.length ? makeTable(list.sessions, address) : h("p", { class: "empty" }, "There is no session here yet. It will appear as soon as one is recorded."),
    !places && list.more ? button(`Show more of the ${number(list.more)} older sessions`, showMore, { id: "more-sessions" }) : null,
    list.problems.length ? showProblems(list.problems) : null,
  );

  function showMore() {
    rows += MORE;
    drawSessions({ main, address, isCurrent });
  }
}

function showNewest(session) {
  const { id, first_words, name } = session.session;
  const picture = makePicture(session, {
    onSelect: (at) => go({ session: id, request: at }),
    onLane: (lane, at) => go({ session: lane, request: at }),
  });
  return h(
    "section",
    { class: "newest" },
    h("h2", {}, "The newest session: ", h("a", { href: linkTo(id) }, first_words || name)),
    h("figure", { class: "figure" }, picture.element),
    h("p", { class: "faint small" }, [...listCounts(session), describeSum(session.totals)].filter(Boolean).join(" · ")),
    makeLegend(),
  );
}

function sumUp(list) {
  const priced = list.sessions.filter((session) => session.dollars !== null);
  const cost = priced.reduce((sum, session) => sum + session.dollars, 0);
  const calls = list.sessions.reduce((sum, session) => sum + session.calls, 0);
  const shown = plural(list.sessions.length, "session");
  const facts = [list.more ? `the newest ${shown} of ${number(list.sessions.length + list.more)}` : shown, plural(calls, "request")];
  if (priced.length) facts.push(`${atLeast(cost, priced.some((session) => session.is_at_least))} as reported, at prices of ${list.prices_as_of}`);
  return facts.join(" · ");
}

function makeTable(sessions, address) {
  const header = ([name, title], at) => {
    const isSorted = name === address.by;
    const sort = button(title, () => go({ by: name }), { class: "sort", title: `Sort by ${title.toLowerCase()}` });
    return h("th", { scope: "col", class: at > 2 ? "num" : null, "aria-sort": isSorted && name ? "descending" : null }, sort);
  };
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "All sessions" },
    h("table", { class: "sessions" }, h("thead", {}, h("tr", {}, COLUMNS.map(header))), h("tbody", {}, arrange(sessions, address.by))),
  );
}

// Sub-agents and forks stand under their parent, and theirs under them, in whichever order the parents are.
function arrange(sessions, by) {
  const column = COLUMNS.find(([name]) => name === by);
  const names = new Set(sessions.map((session) => session.name));
  const children = new Map();
  const roots = [];
  for (const session of sessions) {
    if (session.parent && names.has(session.parent)) {
      children.set(session.parent, [...(children.get(session.parent) || []), session]);
    } else roots.push(session);
  }
  if (by && column) {
    const value = column[2];
    roots.sort((one, other) => (value(one) < value(other) ? -1 : Number(value(one) > value(other))));
  }
  const seen = new Set();
  const withChildren = (session, depth) => {
    if (seen.has(session.id)) return [];
    seen.add(session.id);
    return [makeRow(session, depth), ...(children.get(session.name) || []).flatMap((child) => withChildren(child, depth + 1))];
  };
  const rows = roots.flatMap((session) => withChildren(session, 0));
  return [...rows, ...sessions.flatMap((session) => withChildren(session, 0))]; // two that name each other have no root
}

function makeRow(session, depth) {
  const isLive = !isSaved && session.ended !== null && Date.now() / 1000 - session.ended < LIVE;
  return h(
    "tr",
    { class: depth ? "child" : null, style: { "--depth": String(depth) } },
    h(
      "td",
      {},
      isLive ? h("span", { class: "live", title: "It is running" }, "live ") : null,
      h("a", { href: linkTo(session.id) }, depth ? "↳ " : "", session.first_words || session.name),
      h("div", { class: "faint small" }, [session.answered ? "" : "no answer recorded", session.is_fork ? "fork" : "", session.project, session.source, session.name].filter(Boolean).join(" · ")),
    ),
    h("td", {}, session.model || "not recorded"),
    h("td", { class: "nowrap" }, session.ended === null ? "not recorded" : date(session.ended)),
    h("td", { class: "num" }, number(session.calls)),
    h("td", { class: "num" }, session.tokens === null ? "not recorded" : tokens(session.tokens)),
    h("td", { class: "num" }, session.dollars === null ? "–" : atLeast(session.dollars, session.is_at_least)),
    h("td", { class: "num" }, session.cuts || "–"),
    h("td", { class: "num" }, session.lost_caches || "–"),
  );
}

function showProblems(problems) {
  return h(
    "details",
    { class: "problems" },
    h("summary", {}, `${plural(problems.length, "record")} could not be read`),
    h("ul", {}, problems.map((problem) => h("li", {}, h("code", {}, problem.place), ` ${problem.reason}`))),
  );
}
