// The figures of a session on one line, and the settings under which it is shown.
import { isSaved } from "./api.js";
import { go } from "./address.js";
import { atLeast, h, number, percent, tokens } from "./dom.js";
import { isLost } from "./strip.js";

// Each figure is a value and what it is a value of: "$1.20 as reported", "2 cuts". Of a span, the figures are its own.
export function makeFigures(session, chosen = null) {
  const calls = chosen ? session.calls.filter((call) => call.number >= chosen.from && call.number <= chosen.to) : session.calls;
  const sum = (name) => calls.reduce((total, call) => total + (call[name] || 0), 0);
  const count = (test) => calls.filter(test).length;
  const all = sum("read") + sum("written") + sum("uncached");
  const isSimulated = calls.some((call) => call.simulated);
  const cuts = count((call) => call.cut) + (chosen ? 0 : session.compacted.length);
  const lost = count(isLost);
  const errors = count((call) => call.refusal && !call.is_open);
  const largest = calls.reduce((most, call) => Math.max(most, call.tokens), 0);
  const isEstimated = session.unrecorded && calls.some((call) => call.reported === null);
  const isPriced = calls.some((call) => call.dollars !== null);
  const isAtLeast = isPriced && calls.some((call) => call.dollars === null && !call.is_open);
  const requests = chosen ? calls.length : session.calls.length;
  const figures = [
    [atLeast(isPriced ? sum("dollars") : null, isAtLeast), describeSource(session, isSimulated)],
    [number(requests), `${requests === 1 ? "request" : "requests"}${chosen ? `, from ${chosen.from + 1} to ${chosen.to + 1}` : ""}`],
    [percent(sum("read"), all), "read from the cache"],
    [tokens(largest + session.unrecorded), `of ${tokens(session.window)} at most${isEstimated ? ", estimated" : ""}`],
    [number(cuts), `${cuts === 1 ? "cut" : "cuts"}${session.compacted.length && !chosen ? `, ${session.compacted.length} by the client` : ""}`],
    [number(lost), lost === 1 ? "lost cache" : "lost caches", lost > 0],
  ];
  if (errors) figures.push([number(errors), errors === 1 ? "error" : "errors", true]);
  if (session.lanes.length) figures.push([number(session.lanes.length), session.lanes.length === 1 ? "sub-agent" : "sub-agents"]);
  const item = ([value, words, isBad]) => h("li", {}, h("strong", { class: isBad ? "bad" : null }, value), ` ${words}`);
  return h("ul", { class: "figure-line", "aria-label": "Figures of this session" }, figures.map(item), isSaved ? null : session.relatives.map(linkRelative));
}

// A client that compacts its history goes on in a fork. Both name the other.
function linkRelative(relative) {
  const words = relative.is_parent ? "part of" : "goes on in";
  return h("li", {}, `${words} `, h("a", { href: `#/s/${relative.id}` }, relative.first_words.slice(0, 40) || relative.name));
}

function describeSource(session, isSimulated) {
  if (session.session.source === "demo") return "in this made-up session";
  return isSimulated ? "simulated by the rules" : "as reported";
}

export function describeFacts(session) {
  const summary = session.session;
  const facts = [summary.project, summary.source, summary.model || "model not recorded", `cache rules of ${session.rules}`];
  if (!session.head_recorded) {
    const size = session.unrecorded ? `, about ${tokens(session.unrecorded)} tokens` : "";
    facts.push(`system text and tools not recorded${size}`);
  }
  return facts.filter(Boolean).join(" · ");
}

export function makeSettings(session, address) {
  if (isSaved) return h("p", { class: "faint" }, "A saved page: other cache rules need lamina inspect.");
  const { rules } = address.settings;
  const option = (name) => h("option", { value: name, selected: name === rules }, name || "of its model");
  const choose = (event) => go({ settings: { rules: event.target.value }, segment: null });
  return h(
    "form",
    { class: "controls", onsubmit: (event) => event.preventDefault() },
    h("label", {}, "cache rules", h("select", { onchange: choose }, ["", ...session.all_rules].map(option))),
  );
}
