// What if: the session under other settings as a table, row by row, and two rows side by side.
import { get, isSaved, makeAddress } from "./api.js";
import { go } from "./address.js";
import { button, downloadButton, h, money, number, plural, replace, say, tokens } from "./dom.js";
import { drawWhatIf } from "./questions.js";

const NAMES = ["policy", "window", "model", "rules", "markers", "lifetime", "tools"];
const rowsOfSessions = new Map(); // computed rows, by the address they were asked under

export async function drawAlternatives(shown) {
  if (isSaved) {
    await drawWhatIf(shown);
    return;
  }
  const { body, address } = shown;
  const detail = h("div", { class: "what-if-detail" });
  const table = h("section", { class: "what-if" });
  replace(body, table, detail);
  const choices = await get(`alternatives/${address.session}`);
  if (!table.isConnected) return;
  if (choices.can_build) drawTable(table, choices, address);
  await drawWhatIf({ ...shown, body: detail });
}

function drawTable(section, choices, address) {
  const rows = listRows(choices, address);
  const bar = h("progress", { max: rows.length, value: 0, "aria-label": "Rows that are computed" });
  const words = h("span", { class: "faint small", role: "status" });
  const lines = rows.map((row) => makeLine(row, address));
  const sides = h("div", { class: "sides-by-side" });
  replace(
    section,
    h("h2", {}, "This session under other settings"),
    h("p", { class: "lead" }, describeTable(choices)),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "The session under each setting" },
      h("table", { class: "alternatives", id: "alternatives" }, makeHead(), h("tbody", {}, choices.reported ? makeReported(choices.reported) : null, lines.map((line) => line.element))),
    ),
    h("div", { class: "computing" }, bar, words),
    makeForm(choices, address),
    sides,
  );
  computeRows(lines, address, { section, bar, words, sides, reported: choices.reported });
}

function describeTable(choices) {
  const reported = choices.reported ? "The first row is what the provider reported. " : "Nothing was reported. ";
  const lamina = choices.under_lamina ? "lamina fitted this session already; the other rows begin with the client's own history. " : "";
  return `${reported}All other rows are simulated: the recorded conversation is sent again to a cache that follows its provider's rules. ${lamina}Choose two rows to see them side by side.`;
}

// The settings that say most, and those that somebody added: these stand in the address.
function listRows(choices, address) {
  const rows = [{ policy: "none" }, { policy: "sliding" }, { policy: "drop_oldest" }, { policy: "lamina" }];
  for (const window of choices.windows) rows.push({ policy: "lamina", window: String(window) });
  for (const lifetime of choices.lifetimes) rows.push({ policy: "none", lifetime });
  if (choices.has_markers) rows.push({ policy: "none", markers: "none" });
  if (choices.unused_tools) rows.push({ policy: "none", tools: "called" });
  return [...rows.map((setting) => ({ setting, choices, isOwn: false })), ...readOwn(address).map((setting) => ({ setting, choices, isOwn: true }))];
}

const readOwn = (address) => (address.own.rows || "").split(";").filter(Boolean).map((words) => Object.fromEntries(new URLSearchParams(words)));
const writeOwn = (settings) => settings.map((setting) => new URLSearchParams(setting).toString()).join(";");
const keyOf = (setting) => new URLSearchParams(NAMES.filter((name) => setting[name]).map((name) => [name, setting[name]])).toString();
const readSides = (address) => (address.own.sides || "").split(";").filter(Boolean);

function describeSetting({ setting, choices }) {
  const policy = setting.policy || "none";
  const facts = [policy === "none" ? "everything sent" : choices.policies[policy] || policy];
  if (setting.window) facts.push(`window ${tokens(Number(setting.window))}`);
  if (setting.model) facts.push(setting.model);
  if (setting.rules) facts.push(`cache of ${setting.rules}`);
  if (setting.markers) facts.push(setting.markers === "none" ? "nothing marked for the cache" : "only the end marked");
  if (setting.lifetime) facts.push(`cache kept for ${setting.lifetime}`);
  if (setting.tools === "called") facts.push("without tools that were never called");
  return facts.join(", ");
}

const COLUMNS = ["cost", "change", "cached", "tokens sent", "cuts", "refused", "names in sight"];

function makeHead() {
  const heads = [h("td", {}, h("span", { class: "visually-hidden" }, "side by side")), h("th", { scope: "col" }, "setting"), COLUMNS.map((name) => h("th", { scope: "col", class: "num" }, name))];
  return h("thead", {}, h("tr", {}, heads));
}

function makeReported(reported) {
  const cells = [money(reported.dollars), "", share(reported.cached), tokens(reported.sent), number(reported.cuts), "", ""];
  return h("tr", { class: "reported", "data-row": "reported" }, h("td", {}), h("th", { scope: "row" }, "as reported"), cells.map((cell) => h("td", { class: "num" }, cell)));
}

function makeLine(row, address) {
  const key = keyOf(row.setting);
  const name = describeSetting(row);
  const cells = COLUMNS.map(() => h("td", { class: "num faint" }, "…"));
  const box = h("input", { type: "checkbox", checked: readSides(address).includes(key), "aria-label": `Show side by side: ${name}`, onchange: () => chooseSide(address, key) });
  const remove = row.isOwn ? button("×", () => go({ own: { ...address.own, rows: writeOwn(readOwn(address).filter((setting) => keyOf(setting) !== key)) } }), { class: "quiet", "aria-label": `Remove the row: ${name}` }) : null;
  return { row, key, name, cells, element: h("tr", { "data-row": key }, h("td", {}, box), h("th", { scope: "row" }, name, remove), cells) };
}

// Two rows at most: a third takes the place of the first.
function chooseSide(address, key) {
  const chosen = readSides(address);
  const next = chosen.includes(key) ? chosen.filter((each) => each !== key) : [...chosen, key].slice(-2);
  go({ own: { ...address.own, sides: next.join(";") } });
}

async function computeRows(lines, address, { section, bar, words, sides, reported }) {
  const computed = new Map();
  let done = 0;
  for (const line of lines) {
    replace(words, `computing ${number(done + 1)} of ${number(lines.length)}: ${line.name}`);
    const value = await computeRow(address.session, line.row.setting);
    if (!section.isConnected) return;
    done += 1;
    bar.value = done;
    computed.set(line.key, value);
    fillLine(line, value, computed.get("policy=none"));
  }
  bar.hidden = true;
  replace(words, `${plural(lines.length, "row")}, all simulated. ${describeError(reported, computed.get("policy=none"))} `, downloadButton("what-if-rows", [...computed.values()]));
  say("All rows are computed");
  const chosen = readSides(address).map((key) => lines.find((line) => line.key === key)).filter(Boolean);
  if (chosen.length === 2) await showSides(sides, address.session, chosen);
}

// How far the simulation is off, where it can be compared with what was reported.
function describeError(reported, untouched) {
  if (!reported || !reported.dollars || !untouched || !untouched.dollars || untouched.refused) return "";
  return `The simulation says ${(untouched.dollars / reported.dollars).toFixed(2)} times what was reported, if everything was sent.`;
}

async function computeRow(session, setting) {
  const path = makeAddress(`alternative/${session}`, { ...setting, points: "1" });
  if (!rowsOfSessions.has(path)) {
    const response = await fetch(path);
    rowsOfSessions.set(path, await response.json());
    if (rowsOfSessions.size > 200) rowsOfSessions.delete(rowsOfSessions.keys().next().value);
  }
  return rowsOfSessions.get(path);
}

function fillLine(line, value, untouched) {
  if (value.error) {
    replace(line.element, h("td", {}), h("th", { scope: "row" }, line.name), h("td", { class: "bad", colspan: String(COLUMNS.length) }, value.error));
    return;
  }
  const change = untouched && untouched.dollars && value !== untouched && value.dollars !== null ? changeOf(untouched.dollars, value.dollars) : "";
  const texts = [
    money(value.dollars),
    change,
    share(value.cached),
    tokens(value.sent),
    number(value.cuts),
    value.refused ? number(value.refused) : "–",
    value.needed ? `${share(value.visible / value.needed)}${value.recallable > value.visible ? ", the rest by recall" : ""}` : "–",
  ];
  line.cells.forEach((cell, at) => {
    cell.textContent = texts[at];
    cell.classList.remove("faint");
    cell.classList.toggle("bad", COLUMNS[at] === "refused" && value.refused > 0);
  });
}

function changeOf(before, after) {
  const change = Math.round((100 * (after - before)) / before);
  return change === 0 ? "the same" : `${change > 0 ? "+" : "−"}${Math.abs(change)} %`;
}

function makeForm(choices, address) {
  const field = (name, title, element) => h("label", {}, title, Object.assign(element, { name, id: `row-${name}` }));
  const select = (options) => h("select", {}, options.map(([value, title]) => h("option", { value }, title)));
  const models = h("datalist", { id: "row-models" }, choices.models.map((name) => h("option", { value: name })));
  const fields = [
    field("policy", "policy", select(Object.entries(choices.policies).map(([name, title]) => [name, name === "none" ? "everything sent" : title]))),
    field("window", "window", h("input", { type: "number", min: "1000", step: "1000", placeholder: String(choices.window) })),
    field("model", "model", h("input", { type: "text", list: "row-models", placeholder: choices.model || "its own", autocomplete: "off" })),
    field("rules", "cache", select([["", `of ${choices.rules}`], ...choices.all_rules.map((name) => [name, name])])),
    choices.has_markers ? field("markers", "cache breakpoints", select([["", "planned"], ["last", "only the end"], ["none", "none"]])) : null,
    choices.lifetimes.length ? field("lifetime", "lifetime", select([["", choices.lifetime], ...choices.lifetimes.map((word) => [word, word])])) : null,
    field("tools", "tools", select([["", "all"], ["called", "only those that were called"]])),
  ];
  const onsubmit = (event) => {
    event.preventDefault();
    const values = new FormData(event.target);
    const setting = Object.fromEntries(NAMES.filter((name) => values.get(name)).map((name) => [name, values.get(name)]));
    const others = readOwn(address).filter((other) => keyOf(other) !== keyOf(setting));
    go({ own: { ...address.own, rows: writeOwn([...others, setting]) } });
  };
  return h("form", { class: "controls wide", id: "add-row", onsubmit }, fields, models, h("button", { type: "submit" }, "Add this row"));
}

// Two rows side by side, call by call, on one scale.

async function showSides(box, session, lines) {
  const values = await Promise.all(lines.map((line) => computeRow(session, line.row.setting)));
  if (!box.isConnected || values.some((value) => value.error)) return;
  const most = Math.max(...values.flatMap((value) => value.points.map((point) => point.tokens)), 1);
  replace(
    box,
    h("h3", {}, "Side by side"),
    h("p", { class: "faint small" }, "One bar for each request, of the tokens sent; the dark part was read from the cache, and a red mark below is a cut. Both have one scale."),
    h("div", { class: "two" }, lines.map((line, at) => showSide(line.name, values[at], most))),
    showDifference(lines, values),
  );
}

function showSide(name, value, most) {
  const width = 1000;
  const height = 160;
  const step = width / Math.max(value.points.length, 1);
  const drawing = shape("svg", { viewBox: `0 0 ${width} ${height + 16}`, class: "side-strip", role: "img", "aria-label": `${name}: ${plural(value.calls, "request")}, ${plural(value.cuts, "cut")}, ${money(value.dollars)}`, preserveAspectRatio: "none" });
  value.points.forEach((point, at) => {
    const tall = (height * point.tokens) / most;
    const read = (height * Math.min(point.read, point.tokens)) / most;
    const place = { x: String(at * step), width: String(Math.max(step * 0.85, 0.5)) };
    drawing.append(shape("rect", { ...place, y: String(height - tall), height: String(tall), class: "side-sent" }), shape("rect", { ...place, y: String(height - read), height: String(read), class: "side-read" }));
    if (point.cut) drawing.append(shape("rect", { ...place, y: String(height + 2), height: "10", class: "side-cut" }));
  });
  return h("figure", { class: "figure" }, h("figcaption", {}, h("strong", {}, name), ` · ${money(value.dollars)} · ${share(value.cached)} cached · ${plural(value.cuts, "cut")}${value.refused ? ` · ${plural(value.refused, "refused request")}` : ""}`), drawing);
}

function shape(tag, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function showDifference(lines, [one, other]) {
  const first = one.points.findIndex((point, at) => !other.points[at] || point.tokens !== other.points[at].tokens);
  const words = first < 0 ? "Both send requests of the same sizes." : `Up to request ${number(first)} both send the same amounts; from request ${number(first + 1)} on they part.`;
  return h("p", { id: "difference" }, words, describeCost(lines, one.dollars, other.dollars));
}

function describeCost([first, second], before, after) {
  if (!before || after === null) return "";
  const change = Math.round((100 * (after - before)) / before);
  const words = change === 0 ? "as much as" : `${Math.abs(change)} % ${change > 0 ? "more" : "less"} than`;
  return ` “${second.name}” costs ${words} “${first.name}”.`;
}

function share(part) {
  return part === null || part === undefined ? "–" : `${Math.round(100 * part)} %`;
}
