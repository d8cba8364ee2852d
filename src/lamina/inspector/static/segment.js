// The pane of one segment: as sent, in full, how the two differ, why, and its form over the session.
import { button, copy, download, h, number, replace } from "./dom.js";
import { FORMS } from "./colours.js";

const TABS = ["Sent", "Original", "Difference", "Why", "History", "Recall"];
const MOST_COLOURED = 100000; // characters of JSON that get line breaks, and of code that get line numbers

export function makeSegmentPane(segment, { tab, onTab }) {
  const chosen = TABS.includes(tab) ? tab : "Sent";
  const body = h("div", { class: "pane-body", role: "tabpanel", tabindex: "0", "aria-label": chosen });
  const choose = (name) => {
    for (const other of tabs.children) other.setAttribute("aria-selected", String(other.textContent === name));
    body.setAttribute("aria-label", name);
    replace(body, VIEWS[name](segment));
    onTab(name);
  };
  const makeTab = (name) => button(name, () => choose(name), { role: "tab", "aria-selected": String(name === chosen) });
  const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "What to see of this piece" }, TABS.map(makeTab));
  replace(body, VIEWS[chosen](segment));
  const form = FORMS[segment.form];
  return h(
    "section",
    { class: "pane", "aria-label": "Segment" },
    h(
      "header",
      { class: "pane-head" },
      h("h3", {}, segment.what || segment.kind),
      h("p", { class: "facts" }, `${segment.role} · ${segment.kind} · ${segment.layer} · ${form.glyph} ${form.words} · ${number(segment.tokens)} tokens`),
      segment.form === "FULL" ? null : h("p", { class: "why" }, segment.explanation),
      h(
        "div",
        { class: "buttons" },
        button("Copy", () => copy(segment.form === "OMITTED" ? segment.original : segment.sent)),
        button("Download", () => download(`${segment.key}.txt`, segment.original)),
      ),
    ),
    tabs,
    body,
  );
}

const VIEWS = {
  Sent: (segment) => {
    if (segment.form === "OMITTED") {
      return h("p", { class: "empty" }, "Nothing of it is sent. Its text is under Original.");
    }
    return [segment.form === "FULL" ? showImages(segment) : null, showText(segment.sent, segment)];
  },
  Original: (segment) => [showImages(segment), showText(segment.original, segment)],
  Difference: (segment) => {
    if (!segment.difference.length) return h("p", { class: "empty" }, "It is sent exactly as it was.");
    const looks = { "+": "added", "-": "removed", " ": null };
    const lines = segment.difference.map(([mark, line]) => h("span", { class: looks[mark] }, `${mark} ${line}\n`));
    return h("pre", { class: "text difference" }, lines);
  },
  Why: (segment) => {
    const facts = [
      ["reason", segment.why || "–"],
      ["arrived", `request ${segment.arrived + 1}`],
      ["key", h("code", {}, segment.key)],
    ];
    if (segment.path) facts.push(["about", h("code", {}, segment.path)]);
    if (segment.covers.length) facts.push(["stands for", `${segment.covers.length} pieces`]);
    return h("div", { class: "why-pane" }, h("p", {}, segment.explanation), h("dl", {}, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
  },
  History: (segment) => h("ol", { class: "history" }, segment.history.map(showChange)),
  Recall: (segment) => {
    if (!segment.recall) return h("p", { class: "empty" }, "It is sent in full, so there is nothing to recall.");
    return h(
      "div",
      {},
      h("p", {}, "The model, or you, can bring it back by this handle:"),
      h("pre", { class: "text" }, `recall("${segment.recall}")`),
      h("p", { class: "faint" }, "This is what a recall returns:"),
      showText(segment.original, segment),
    );
  },
};

function showChange(change) {
  const form = FORMS[change.form];
  return h(
    "li",
    {},
    h("a", { href: "#", class: "to-request", "data-request": String(change.call) }, `request ${change.call + 1}`),
    ` ${form.glyph} ${form.words}`,
    change.why ? h("span", { class: "faint" }, ` – ${change.why}`) : null,
  );
}

// Only images that are part of the session itself: nothing is loaded from elsewhere.
function showImages(segment) {
  return segment.images.map((source, at) => h("img", { class: "image", src: source, alt: `Image ${at + 1} of this piece` }));
}

function showText(text, segment) {
  if (!text) return h("p", { class: "empty" }, "It is empty.");
  return h(
    "div",
    {},
    segment.clipped ? h("p", { class: "faint" }, "Only the beginning is shown. Raw JSON has all of it.") : null,
    h("pre", { class: "text" }, colour(text, segment)),
  );
}

// JSON with line breaks, the arguments of a call as JSON, a file with the numbers of its lines; else the text.
function colour(text, segment) {
  if (text.length > MOST_COLOURED) return text;
  const call = /^([A-Za-z0-9_.:-]{1,100})\((\{[^]*\})\)$/.exec(text);
  const json = readJson(call ? call[2] : text);
  if (json) return [call ? h("strong", {}, `${call[1]} `) : null, json];
  const isFile = segment.kind === "tool_result" && /\.[A-Za-z0-9]{1,8}$/.test(segment.path) && !segment.path.includes(" ");
  if (isFile && segment.form === "FULL") return text.split("\n").map((line) => h("span", { class: "code-line" }, `${line}\n`));
  return text;
}

function readJson(text) {
  if (!["{", "["].includes(text.trimStart()[0])) return null;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return null;
  }
}
