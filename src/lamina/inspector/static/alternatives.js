// What if: the session under other settings as a table, row by row.
import { get, isSaved, makeAddress } from "./api.js";
import { go } from "./address.js";
import { button, downloadButton, h, money, number, plural, replace, say, tokens } from "./dom.js";

const NAMES = ["policy", "window", "model", "rules"];
const rowsOfSessions = new Map(); // computed rows, by the address they were asked under

export async function drawAlternatives({ body, address }) {
  if (isSaved) {
    replace(body, h("h2", {}, "What if?"), h("p", {}, "This file holds no other settings. Open the session with lamina inspect."));
    return;
  }
  const table = h("section", { class: "what-if" });
  replace(body, table);
  const choices = await get(`alternatives/${address.session}`);
  if (!table.isConnected) return;
  if (choices.can_build) drawTable(table, choices, address);
  else replace(table, h("h2", {}, "What if?"), h("p", { class: "empty" }, "The texts of this session are not kept, so it cannot be sent again under other settings."));
}

function drawTable(section, choices, address) {
  const rows = listRows(choices, address);
  const bar = h("progress", { max: rows.length, value: 0, "aria-label": "Rows that are computed" });
  const words = h("span", { class: "faint small", role: "status" });
  const lines = rows.map((row) => makeLine(row, address));
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
  );
  computeRows(lines, address, { section, bar, words, reported: choices.reported });
}

function describeTable(choices) {
  const reported = choices.reported ? "The first row is what the provider reported. " : "Nothing was reported. ";
  const lamina = choices.under_lamina ? "lamina fitted this session already; the other rows begin with the client's own history. " : "";
  return `${reported}All other rows are simulated: the recorded conversation is sent again to a cache that follows its provider's rules. ${lamina}`.trim();
}

// The settings that say most, and those that somebody added: these stand in the address.
function listRows(choices, address) {
  const rows = [{ policy: "none" }, { policy: "sliding" }, { policy: "drop_oldest" }, { policy: "lamina" }];
  for (const window of choices.windows) rows.push({ policy: "lamina", window: String(window) });
  return [...rows.map((setting) => ({ setting, choices, isOwn: false })), ...readOwn(address).map((setting) => ({ setting, choices, isOwn: true }))];
}

const readOwn = (address) => (address.own.rows || "").split(";").filter(Boolean).map((words) => Object.fromEntries(new URLSearchParams(words)));
const writeOwn = (settings) => settings.map((setting) => new URLSearchParams(setting).toString()).join(";");
const keyOf = (setting) => new URLSearchParams(NAMES.filter((name) => setting[name]).map((name) => [name, setting[name]])).toString();

function describeSetting({ setting, choices }) {
  const policy = setting.policy || "none";
  const facts = [policy === "none" ? "everything sent" : choices.policies[policy] || policy];
  if (setting.window) facts.push(`window ${tokens(Number(setting.window))}`);
  if (setting.model) facts.push(setting.model);
  if (setting.rules) facts.push(`cache of ${setting.rules}`);
  return facts.join(", ");
}

const COLUMNS = ["cost", "change", "cached", "tokens sent", "cuts", "refused", "names in sight"];

function makeHead() {
  const heads = [h("th", { scope: "col" }, "setting"), COLUMNS.map((name) => h("th", { scope: "col", class: "num" }, name))];
  return h("thead", {}, h("tr", {}, heads));
}

function makeReported(reported) {
  const cells = [money(reported.dollars), "", share(reported.cached), tokens(reported.sent), number(reported.cuts), "", ""];
  return h("tr", { class: "reported", "data-row": "reported" }, h("th", { scope: "row" }, "as reported"), cells.map((cell) => h("td", { class: "num" }, cell)));
}

function makeLine(row, address) {
  const key = keyOf(row.setting);
  const name = describeSetting(row);
  const cells = COLUMNS.map(() => h("td", { class: "num faint" }, "…"));
  const remove = row.isOwn ? button("×", () => go({ own: { ...address.own, rows: writeOwn(readOwn(address).filter((setting) => keyOf(setting) !== key)) } }), { class: "quiet", "aria-label": `Remove the row: ${name}` }) : null;
  return { row, key, name, cells, element: h("tr", { "data-row": key }, h("th", { scope: "row" }, name, remove), cells) };
}

async function computeRows(lines, address, { section, bar, words, reported }) {
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
}

// How far the simulation is off, where it can be compared with what was reported.
function describeError(reported, untouched) {
  if (!reported || !reported.dollars || !untouched || !untouched.dollars || untouched.refused) return "";
  return `The simulation says ${(untouched.dollars / reported.dollars).toFixed(2)} times what was reported, if everything was sent.`;
}

async function computeRow(session, setting) {
  const path = makeAddress(`alternative/${session}`, setting);
  if (!rowsOfSessions.has(path)) {
    const response = await fetch(path);
    rowsOfSessions.set(path, await response.json());
    if (rowsOfSessions.size > 200) rowsOfSessions.delete(rowsOfSessions.keys().next().value);
  }
  return rowsOfSessions.get(path);
}

function fillLine(line, value, untouched) {
  if (value.error) {
    replace(line.element, h("th", { scope: "row" }, line.name), h("td", { class: "bad", colspan: String(COLUMNS.length) }, value.error));
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

function share(part) {
  return part === null || part === undefined ? "–" : `${Math.round(100 * part)} %`;
}
