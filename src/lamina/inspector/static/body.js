// The body of a request as it was sent, and what came back for it.
import { get } from "./api.js";
import { button, copy, download, h, number, replace, span } from "./dom.js";

const LONG_TEXT = 4000; // characters of a part of an answer that the short form shows

function describeBody(body) {
  const facts = [`${body.dialect.replace("_", " ")} API`, `${number(body.size)} bytes`, body.is_sent ? "as it was sent" : "written again from the log, which does not hold the bytes"];
  if (body.client !== null) facts.push(`the client wrote ${number(body.client)} bytes, which lamina fitted`);
  return facts.join(" · ");
}

// The exact bytes, and the same with line breaks.
export async function drawRaw(box, address) {
  const body = await get(`body/${address.session}/${address.request}`);
  const text = h("pre", { class: "text raw", id: "raw-text", tabindex: "0", "aria-label": "The body as JSON" });
  const choose = (isPretty) => {
    replace(text, isPretty ? JSON.stringify(JSON.parse(body.text), null, 2) : body.text);
    for (const each of choices.children) each.setAttribute("aria-pressed", String((each.dataset.look === "pretty") === isPretty));
  };
  const choices = h("div", { class: "switch", role: "group", "aria-label": "How the JSON is written" }, button("With line breaks", () => choose(true), { "data-look": "pretty" }), button("Byte for byte", () => choose(false), { "data-look": "exact" }));
  choose(true);
  const name = `request-${address.request + 1}.json`;
  replace(box, h("p", { class: "faint small" }, describeBody(body)), h("div", { class: "buttons" }, choices, button("Copy", () => copy(body.text)), button("Download", () => download(name, body.text))), text);
}

const SORTS = { text: "Text", thinking: "Thinking", call: "Call", raw: "As it came", other: "" };

// Status, times, and what the model said. `isShort`: thinking is closed, and long texts are cut.
export function showAnswer(request, { isShort }) {
  const answer = request.answer;
  const call = request.call;
  if (!answer) {
    const words = call.is_open ? `${call.refusal}.` : "Nothing came back that was recorded.";
    return h("p", { class: "empty" }, words);
  }
  return h(
    "div",
    { class: "answer" },
    h("p", { class: "facts" }, describeAnswer(answer)),
    answer.error ? h("p", { class: "bad" }, answer.error) : null,
    answer.diagnosis ? h("p", { class: "diagnosis" }, h("strong", {}, "The provider on its cache: "), h("code", {}, answer.diagnosis)) : null,
    answer.parts.length ? answer.parts.map((part) => showPart(part, isShort)) : h("p", { class: "empty" }, answer.is_kept ? answer.problem || "It is empty." : "Its text is not kept."),
  );
}

export function describeAnswer(answer) {
  const facts = [answer.status ? `status ${answer.status}` : "no answer"];
  if (answer.first) facts.push(`first byte after ${seconds(answer.first)}`);
  if (answer.last) facts.push(`last after ${seconds(answer.last)}`);
  if (answer.stop.length) facts.push(`stopped: ${answer.stop.join(", ")}`);
  if (answer.id) facts.push(answer.id);
  return facts.join(" · ");
}

const seconds = (value) => (value < 90 ? `${value.toFixed(value < 10 ? 2 : 1)} s` : span(value));

function showPart(part, isShort) {
  const title = [SORTS[part.sort], part.name].filter(Boolean).join(" ");
  const isLong = isShort && part.text.length > LONG_TEXT;
  const text = h("pre", { class: "text", tabindex: "0", "aria-label": title || part.sort }, isLong ? `${part.text.slice(0, LONG_TEXT)}…` : part.text);
  const isClosed = isShort && part.sort === "thinking";
  return h("details", { class: "section", "data-sort": part.sort, open: !isClosed }, h("summary", {}, h("strong", {}, title), h("span", { class: "num faint" }, number(part.text.length))), text);
}

export async function drawAnswer(box, request, address) {
  const headers = request.answer ? Object.entries(request.answer.headers) : [];
  const raw = h("div", {});
  const showRaw = async () => {
    const answer = await get(`answer/${address.session}/${address.request}`);
    replace(raw, h("h3", {}, "As it came"), h("pre", { class: "text raw", id: "raw-answer", tabindex: "0", "aria-label": "The answer as it came" }, answer.text));
  };
  replace(
    box,
    showAnswer(request, { isShort: false }),
    headers.length ? [h("h3", {}, "Headers"), h("dl", { class: "inline" }, headers.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]))] : null,
    request.answer && request.answer.is_kept ? h("div", { class: "buttons" }, button("Show the raw answer", showRaw, { id: "show-raw" })) : null,
    raw,
  );
}
