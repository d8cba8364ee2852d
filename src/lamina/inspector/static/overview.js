// All sessions on one page: what they cost, where it went, and why caches were lost. Every row is a link.
import { get } from "./api.js";
import { go, writeAddress } from "./address.js";
import { button, date, downloadButton, h, money, number, plural, replace, tokens } from "./dom.js";

const DAYS = [["", "all"], ["1", "today"], ["7", "7 days"], ["30", "30 days"]];
const FILTERS = ["client", "project", "model", "user"];
const GROUPS = [["project", "Projects"], ["client", "Clients"], ["model", "Models"], ["user", "Users"]];
const SHOWN = 8; // rows of a list before "more"

export async function drawOverview({ main, address, isCurrent }) {
  const chosen = Object.fromEntries(["days", ...FILTERS].map((name) => [name, address.own[name] || ""]));
  const answer = await get("across", {}, chosen);
  if (!isCurrent()) return;
  replace(
    main,
    h(
      "section",
      { class: "intro" },
      h("div", { class: "title-line" }, h("h1", {}, "Overview"), downloadButton("overview", answer)),
      makeFilters(chosen),
      makeLine(answer),
    ),
    answer.sessions ? showAll(answer, chosen) : h("p", { class: "empty" }, answer.of ? "No session is left by these filters." : "There is no session here yet."),
  );
}

function makeFilters(chosen) {
  const choose = (changes) => () => go({ own: { ...chosen, ...changes } });
  const day = ([value, title]) => button(title, choose({ days: value }), { class: "chip", "data-days": value || "all", "aria-pressed": String(value === chosen.days) });
  const active = FILTERS.filter((name) => chosen[name]);
  const filter = (name) => button(`${name}: ${chosen[name]} ×`, choose({ [name]: "" }), { class: "chip", "data-filter": name, "aria-label": `Leave out the filter ${name}: ${chosen[name]}` });
  return h("div", { class: "chips", role: "group", "aria-label": "Which sessions" }, DAYS.map(day), active.map(filter));
}

function makeLine(answer) {
  const unpriced = answer.sessions - answer.priced;
  const figures = [
    [money(answer.dollars), unpriced ? `in ${plural(answer.priced, "session")} with a price` : "as reported"],
    [number(answer.sessions), answer.sessions === answer.of ? "sessions" : `of ${plural(answer.of, "session")}`],
    [number(answer.calls), "requests"],
    [share(answer.cached), "read from the cache"],
    [number(answer.losses), `lost caches, ${money(answer.lost_dollars)}`, answer.losses > 0],
    [number(answer.cuts), "cuts"],
  ];
  const item = ([value, words, isBad]) => h("li", {}, h("strong", { class: isBad ? "bad" : null }, value), ` ${words}`);
  return h("ul", { class: "figure-line", "aria-label": "Figures of these sessions" }, figures.map(item));
}

function showAll(answer, chosen) {
  return [
    answer.saving ? showSaving(answer.saving) : null,
    answer.reasons.length ? showReasons(answer.reasons) : null,
    answer.groups.day.length > 1 ? showDays(answer.groups.day) : null,
    h("div", { class: "blocks groups" }, GROUPS.filter(([name]) => answer.groups[name].length > 1 || chosen[name]).map(([name, title]) => showGroup(name, title, answer.groups[name], chosen))),
    h(
      "div",
      { class: "blocks" },
      answer.lost.length ? showList("lost", "Dearest lost caches", "What these requests paid beyond reading the cache, as reported.", answer.lost, lostRow) : null,
      showList("dearest", "Dearest sessions", "As reported, at list prices.", answer.dearest, sessionRow),
    ),
  ];
}

// One bar for each setting of `lamina run`, as long as what the sessions would have cost with it.
function showSaving(saving) {
  const bar = (row) => h("span", { class: "saving-bar", "aria-hidden": "true" }, h("span", { style: { width: `${Math.min(100, (100 * (1 - row.saved)))}%` } }));
  const cells = (row) => [row.working === null ? "all" : tokens(row.working), money(row.dollars), share(row.saved), number(row.cuts)];
  const item = (row) =>
    h(
      "tr",
      { class: row.is_recommended ? "recommended" : null },
      h("th", { scope: "row" }, h("code", {}, row.flag), row.is_recommended ? h("span", { class: "small" }, " recommended") : null),
      h("td", { class: "bar-cell" }, bar(row)),
      cells(row).map((cell) => h("td", { class: "num" }, cell)),
    );
  const heads = ["in sight", "cost", "saved", "cuts"].map((head) => h("th", { scope: "col", class: "num" }, head));
  return h(
    "section",
    { class: "block", id: "saving" },
    h("h2", {}, "What lamina run would have saved"),
    h("p", { class: "faint small" }, `In ${plural(saving.sessions, "session")} that ran without it. The first row is recorded; the others are simulated from sizes and pauses.`),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Settings of lamina run" }, h("table", {}, h("thead", {}, h("tr", {}, h("td", {}), h("td", {}), heads)), h("tbody", {}, saving.rows.map(item)))),
    h("p", {}, h("code", {}, saving.command)),
  );
}

function showReasons(reasons) {
  const item = (each) =>
    h(
      "li",
      {},
      h("span", { class: "amount" }, each.dollars === null ? `${tokens(each.tokens)} tokens` : money(each.dollars)),
      h("div", {}, h("p", {}, h("strong", {}, `${plural(each.times, "time")}: ${each.why}`)), h("p", { class: "faint small" }, each.advice)),
    );
  return h("section", { class: "block advice", id: "reasons" }, h("h2", {}, "Why caches were lost"), h("p", { class: "faint small" }, "What these requests paid beyond reading the cache, as reported."), h("ol", {}, reasons.map(item)));
}

// One bar for each day, with its cost, or its tokens where nothing has a price.
function showDays(days) {
  const isPriced = days.some((day) => day.dollars);
  const value = (day) => (isPriced ? day.dollars || 0 : day.sent);
  const words = (day) => `${day.name}: ${isPriced ? money(day.dollars) : `${tokens(day.sent)} tokens`}, ${plural(day.sessions, "session")}, ${share(day.cached)} cached, ${plural(day.losses, "lost cache")}`;
  const most = Math.max(...days.map(value), 1e-9);
  const bar = (day) => h("li", { title: words(day) }, h("span", { class: "visually-hidden" }, words(day)), h("span", { class: "day-bar", "aria-hidden": "true", style: { height: `${Math.max(2, Math.round((100 * value(day)) / most))}%` } }));
  return h(
    "section",
    { class: "block", id: "days" },
    h("h2", {}, `${isPriced ? "Cost" : "Tokens sent"} by day`),
    h("ol", { class: "days", tabindex: "0", "aria-label": "Days, the oldest first" }, days.map(bar)),
    h("p", { class: "faint small days-ends" }, h("span", {}, days[0].name), h("span", {}, `at most ${isPriced ? money(most) : `${tokens(most)} tokens`}`), h("span", {}, days[days.length - 1].name)),
  );
}

function showGroup(name, title, rows, chosen) {
  const choose = (row) => button(row.name, () => go({ own: { ...chosen, [name]: row.name } }), { class: "link", title: `Only ${row.name}` });
  const cells = (row) => [number(row.sessions), money(row.dollars), share(row.cached), row.losses || "–"];
  const hasSaved = rows.some((row) => row.saved !== null);
  const heads = ["sessions", "cost", "cached", "lost caches", ...(hasSaved ? ["lamina saves"] : [])];
  const all = (row) => (hasSaved ? [...cells(row), share(row.saved)] : cells(row));
  return h(
    "section",
    { class: "block", id: `by-${name}` },
    h("h2", {}, title),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, h("td", {}), heads.map((head) => h("th", { scope: "col", class: "num" }, head)))),
        h("tbody", {}, rows.map((row) => h("tr", {}, h("th", { scope: "row" }, choose(row)), all(row).map((cell) => h("td", { class: "num" }, cell))))),
      ),
    ),
  );
}

function showList(id, title, meaning, rows, draw) {
  const list = h("ol", { class: "ranked places" }, rows.slice(0, SHOWN).map(draw));
  const rest = rows.slice(SHOWN);
  const more = button(`${plural(rest.length, "more", "more")}`, () => {
    for (const row of rest) list.append(draw(row));
    more.remove();
  });
  return h("section", { class: "block", id }, h("h2", {}, title), h("p", { class: "faint small" }, meaning), list, rest.length ? more : null);
}

const lostRow = (lost) => placeRow(lost.dollars === null ? tokens(lost.tokens) : money(lost.dollars), lost.place, lost.why, [lost.place.title]);
const sessionRow = (each) => placeRow(money(each.dollars), each.place, each.place.title, [each.project, each.client, each.model, plural(each.calls, "request"), each.began === null ? "" : date(each.began)]);

function placeRow(amount, place, words, facts) {
  return h("li", {}, h("span", { class: "num" }, amount), h("span", { class: "what" }, h("a", { href: placeAddress(place) }, words), h("span", { class: "faint small" }, facts.filter(Boolean).join(" · "))));
}

export function placeAddress(place) {
  return writeAddress({ session: place.session, request: place.request, segment: null, page: null, view: "request", tab: "Sent", sort: "order", settings: {}, own: {} });
}

function share(part) {
  return part === null || part === undefined ? "–" : `${Math.round(100 * part)} %`;
}
