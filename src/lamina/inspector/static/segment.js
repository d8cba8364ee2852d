// The pane of one segment: as sent, in full, how the two differ, why, and its form over the session.
import { download, h, number, replace, say } from "./dom.js";
import { FORMS } from "./colours.js";

const TABS = ["Sent", "Original", "Difference", "Why", "History", "Recall"];

export function makeSegmentPane(segment, { tab, onTab, onWhatIf }) {
  const body = h("div", { class: "pane-body", role: "tabpanel", tabindex: "0" });
  const tabs = h(
    "div",
    { class: "tabs", role: "tablist", "aria-label": "What to see of this segment" },
    TABS.map((name) =>
      h(
        "button",
        {
          type: "button",
          role: "tab",
          "aria-selected": String(name === tab),
          onclick: () => {
            for (const other of tabs.children) other.setAttribute("aria-selected", String(other.textContent === name));
            show(name);
            onTab(name);
          },
        },
        name,
      ),
    ),
  );
  function show(name) {
    replace(body, VIEWS[name](segment));
  }
  show(tab);
  return h(
    "section",
    { class: "pane", "aria-label": "Segment" },
    h(
      "header",
      { class: "pane-head" },
      h("h3", {}, segment.what || segment.kind),
      h(
        "p",
        { class: "facts" },
        `${segment.role} · ${segment.kind} · ${segment.layer} · ${FORMS[segment.form].glyph} ${FORMS[segment.form].words} · ${number(segment.tokens)} tokens`,
      ),
      h(
        "div",
        { class: "buttons" },
        h("button", { type: "button", onclick: () => copy(segment.sent) }, "Copy"),
        h("button", { type: "button", onclick: () => download(`${segment.key}.txt`, segment.original) }, "Download"),
        onWhatIf && h("button", { type: "button", onclick: () => onWhatIf("pinned", segment.ref) }, "What if pinned"),
        onWhatIf && h("button", { type: "button", onclick: () => onWhatIf("left_out", segment.ref) }, "What if left out"),
      ),
    ),
    tabs,
    body,
  );
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    say("Copied");
  } catch {
    say("The browser does not allow copying here");
  }
}

const VIEWS = {
  Sent: (segment) =>
    segment.form === "OMITTED"
      ? h("p", { class: "empty" }, "Nothing of this segment is sent. Its text is under Original.")
      : showText(segment.sent, segment.clipped),
  Original: (segment) => showText(segment.original, segment.clipped),
  Difference: (segment) =>
    segment.difference.length
      ? h(
          "pre",
          { class: "text difference" },
          segment.difference.map(([mark, line]) =>
            h("span", { class: { "+": "added", "-": "removed", " ": "" }[mark] }, `${mark} ${line}\n`),
          ),
        )
      : h("p", { class: "empty" }, "It is sent exactly as it was."),
  Why: (segment) =>
    h(
      "div",
      { class: "why-pane" },
      h("p", {}, segment.explanation),
      h(
        "dl",
        {},
        h("dt", {}, "reason"),
        h("dd", {}, segment.why || "–"),
        h("dt", {}, "arrived"),
        h("dd", {}, `request ${segment.arrived + 1}`),
        h("dt", {}, "key"),
        h("dd", {}, h("code", {}, segment.key)),
        segment.covers.length ? [h("dt", {}, "stands for"), h("dd", {}, `${segment.covers.length} segments`)] : null,
      ),
    ),
  History: (segment) =>
    h(
      "ol",
      { class: "history" },
      segment.history.map((change) =>
        h(
          "li",
          {},
          h("a", { href: "#", class: "to-request", "data-request": String(change.call) }, `request ${change.call + 1}`),
          ` ${FORMS[change.form].glyph} ${FORMS[change.form].words}`,
          change.why ? h("span", { class: "faint" }, ` – ${change.why}`) : null,
        ),
      ),
    ),
  Recall: (segment) =>
    segment.recall
      ? h(
          "div",
          {},
          h("p", {}, "The model, or you, can bring it back by this handle:"),
          h("pre", { class: "text" }, `recall("${segment.recall}")`),
          h("p", { class: "faint" }, "What a recall returns is under Original."),
        )
      : h("p", { class: "empty" }, "It is sent in full, so there is nothing to recall."),
};

function showText(text, clipped) {
  if (!text) return h("p", { class: "empty" }, "It is empty.");
  return h(
    "div",
    {},
    clipped ? h("p", { class: "faint" }, "Only the beginning is shown. Download has all of it.") : null,
    h("pre", { class: "text" }, pretty(text)),
  );
}

function pretty(text) {
  const start = text.trimStart()[0];
  if (text.length < 200000 && (start === "{" || start === "[")) {
    try {
      return JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      return text;
    }
  }
  return text;
}
