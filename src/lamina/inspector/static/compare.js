// Two requests of a session: where and why they part, and what that cost.
import { get } from "./api.js";
import { go } from "./address.js";
import { capital, h, money, number, plural, replace, span, tokens } from "./dom.js";

export async function drawCompare({ body, session, address, isCurrent }) {
  if (session.calls.length < 2) {
    replace(body, h("p", { class: "empty" }, "There is only one request, so there is nothing to compare."));
    return;
  }
  const after = Math.max(address.request, 1);
  const before = address.before ? Number(address.before) : after - 1;
  const answer = await get(`compare/${address.session}/${before}/${after}`);
  if (!isCurrent()) return;
  const choose = (name, value, apply) =>
    h("label", {}, name, h("input", { type: "number", min: "1", max: String(session.calls.length), value: String(value + 1), onchange: (event) => apply(Number(event.target.value) - 1) }));
  replace(
    body,
    h("h2", {}, "Why does this request differ?"),
    h(
      "form",
      { class: "controls", onsubmit: (event) => event.preventDefault() },
      choose("from request", before, (value) => go({ before: String(value), request: after })),
      choose("to request", after, (value) => go({ before: String(before), request: value })),
    ),
    showVerdict(answer, session),
    answer.note ? null : showFirstByte(answer),
    answer.note ? null : h("p", { class: "faint" }, `${plural(answer.shared, "block")} at the beginning ${answer.shared === 1 ? "is" : "are"} the same in both. From there on:`),
    answer.note ? h("p", { class: "faint", id: "not-kept" }, `${capital(answer.note).replace(/\.$/, "")}.`) : showSides(answer),
    answer.more_rows ? h("p", { class: "faint" }, `${plural(answer.more_rows, "more block")} differ.`) : null,
  );
}

function showSides(answer) {
  const heads = ["block", `request ${answer.before + 1}`, `request ${answer.after + 1}`].map((name) => h("th", { scope: "col" }, name));
  const rows = answer.rows.length ? answer.rows.map(showRow) : h("tr", {}, h("td", { colspan: "3", class: "faint" }, "Nothing: the two are the same."));
  const table = h("table", { class: "sides" }, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Both requests side by side" }, table);
}

// The first byte that differs, in both requests, with what stands before it.
function showFirstByte(answer) {
  const first = answer.first_byte;
  if (!first) return null;
  const line = (words, text, look) => h("tr", {}, h("th", { scope: "row" }, words), h("td", {}, h("code", {}, h("span", { class: "faint" }, first.same), h("mark", { class: look }, text || "nothing"))));
  return h(
    "div",
    { class: "first-byte", id: "first-byte" },
    h("h3", {}, `The first byte that differs: ${first.place || "at the end"}, byte ${number(first.byte)} of the block`),
    h("table", {}, h("tbody", {}, line("before", first.before, "removed"), line("after", first.after, "added"))),
  );
}

function showRow(row) {
  if (row.operation === "same") return h("tr", { class: "same" }, h("td", { colspan: "3", class: "faint" }, `${plural(row.count, "block")} the same`));
  const block = row.after || row.before;
  const name = h("td", {}, h("strong", {}, block.sort), h("div", { class: "faint small" }, block.place));
  if (row.operation === "changed") {
    const side = (skipped) => row.words.filter(([mark]) => mark !== skipped).map(([mark, text]) => (mark === " " ? text : h("span", { class: mark === "+" ? "added" : "removed" }, text)));
    return h("tr", { "data-operation": "changed" }, name, showText(side("+")), showText(side("-")));
  }
  return h("tr", { "data-operation": row.operation }, name, row.before ? showText(h("span", { class: "removed" }, row.before.text)) : showAbsent(), row.after ? showText(h("span", { class: "added" }, row.after.text)) : showAbsent());
}

const showText = (content) => h("td", {}, h("pre", { class: "text small", tabindex: "0" }, content));
const showAbsent = () => h("td", {}, h("span", { class: "faint" }, "not there"));

function showVerdict(answer, session) {
  const [earlier, later] = [answer.before, answer.after].map((number) => session.calls[number]);
  const continues = answer.cause === "none";
  const sentence = continues ? "The later request continues the earlier one: nothing that was sent has changed." : `${capital(answer.sentence).replace(/\.$/, "")}.`;
  const byBytes = [
    ["place", answer.was || answer.entry || "–"],
    ["first different byte", number(answer.offset)],
    ["the same", `${number(answer.kept)} tokens`],
    ["sent anew", `${number(answer.lost)} tokens`],
  ];
  const facts = [["cause", answer.cause], ...(answer.note ? [] : byBytes)];
  if (!continues && answer.price !== null) facts.push(["price of the loss by the rules", money(answer.price)]);
  if (answer.gap) facts.push(["time between", span(answer.gap)]);
  return h(
    "div",
    { class: "verdict", id: "verdict" },
    h("p", { class: "sentence" }, sentence),
    answer.reported ? h("p", { id: "reported", class: isBad(answer.reported.loss) ? "bad" : null }, describeReport(answer)) : null,
    h("p", { id: "cost-change" }, describeCost(earlier, later)),
    answer.advice ? h("p", {}, answer.advice) : null,
    h("dl", { class: "inline" }, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
  );
}

const BY = { client: "by what the client sent", expiry: "by time", provider: "by the provider", unknown: "nobody knows by whom" };

const isBad = (loss) => loss !== null && loss.by !== "lamina";

// What the provider reported decides whether the cache was lost; the bytes say why.
function describeReport(answer) {
  const { shared, read, loss } = answer.reported;
  const amounts = `the provider reported ${number(read)} tokens read, of ${number(shared)} that it could have had`;
  if (!loss) return `The cache was not lost: ${amounts}.`;
  const price = loss.dollars === null ? "" : `, which cost ${money(loss.dollars)} more than reading them`;
  const saved = loss.saved === null ? "" : ` Until the next cut, what it left out would have been read for about ${money(loss.saved)}.`;
  const verdict = loss.by === "lamina" ? "lamina's cut took the cache" : `The cache was lost (${BY[loss.by]})`;
  return `${verdict}: ${amounts}. ${number(loss.tokens)} tokens were paid anew${price}.${saved}`;
}

function describeCost(earlier, later) {
  const paid = (call) => `${money(call.dollars)} (${tokens(call.read)} read, ${tokens(call.written)} written, ${tokens(call.uncached)} paid in full, ${tokens(call.output)} answered)`;
  return `Request ${earlier.number + 1} cost ${paid(earlier)}; request ${later.number + 1} cost ${paid(later)}.`;
}
