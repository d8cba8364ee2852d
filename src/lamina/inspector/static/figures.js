// The figures of a session on one line, and the settings under which it is shown.
import { isSaved } from "./api.js";
import { go } from "./address.js";
import { button, h, money, number, percent, plural, tokens } from "./dom.js";

// Each figure is a value and what it is a value of: "$1.20 as reported", "2 cuts".
export function makeFigures(session) {
  const totals = session.totals;
  const all = totals.read + totals.written + totals.uncached;
  const isSimulated = session.calls.some((call) => call.simulated);
  const cuts = totals.cuts + session.compacted.length;
  const figures = [
    [money(totals.dollars), isSimulated ? "simulated by the rules" : "as reported"],
    [number(session.recorded_calls), session.recorded_calls === 1 ? "request" : "requests"],
    [percent(totals.read, all), "read from the cache"],
    [tokens(totals.largest + session.unrecorded), `of ${tokens(session.window)} at most${session.unrecorded ? ", estimated" : ""}`],
    [number(cuts), `${cuts === 1 ? "cut" : "cuts"}${session.compacted.length ? `, ${session.compacted.length} by the client` : ""}`],
    [number(totals.broken), totals.broken === 1 ? "lost prefix" : "lost prefixes", totals.broken > 0],
  ];
  if (totals.refused) figures.push([number(totals.refused), totals.refused === 1 ? "error" : "errors", true]);
  if (totals.failed) figures.push([number(totals.failed), "too large", true]);
  if (session.lanes.length) figures.push([number(session.lanes.length), session.lanes.length === 1 ? "sub-agent" : "sub-agents"]);
  const item = ([value, words, isBad]) => h("li", {}, h("strong", { class: isBad ? "bad" : null }, value), ` ${words}`);
  return h("ul", { class: "figure-line", "aria-label": "Figures of this session" }, figures.map(item));
}

export function describeFacts(session) {
  const summary = session.session;
  const facts = [summary.project, summary.source, summary.model || "model not recorded", `cache rules of ${session.rules}`];
  if (session.skipped) facts.push(`a long session: ${plural(session.calls.length, "request")} of it were built`);
  if (!session.head_recorded) {
    const size = session.unrecorded ? `, about ${tokens(session.unrecorded)} tokens` : "";
    facts.push(`system text and tools not recorded${size}`);
  }
  return facts.filter(Boolean).join(" · ");
}

export function makeSettings(session, address) {
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
  );
}
