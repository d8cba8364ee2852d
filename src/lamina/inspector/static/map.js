// The window map of one request: what was sent, in its order and by its size; beside it what was left out, one block for
// each reason.
import { h, number, svg, tokens } from "./dom.js";
import { CACHE, FORMS, LAYERS } from "./colours.js";

const LEFT = 22;
const WIDTH = 112;
const GHOST_LEFT = LEFT + WIDTH + 12;
const GHOST = 64;
const TOP = 24;
const HEIGHT = 614;
const ROW = 30;

export function makeMap(request, { onSelect }) {
  const sent = request.entries.filter((entry) => entry.form !== "OMITTED");
  const blocks = groupLeftOut(request.entries);
  const hidden = blocks.reduce((sum, block) => sum + block.tokens, 0);
  const fixed = [["unrecorded", request.unrecorded], ["tools", request.tools]].filter(([, amount]) => amount);
  const total = [...fixed.map(([, amount]) => amount), ...sent.map((entry) => entry.tokens)].reduce((sum, amount) => sum + amount, 0);
  const scale = HEIGHT / Math.max(total, hidden, 1);
  const text = (words, x, y, attributes = {}) => svg("text", { x, y, "pointer-events": "none", ...attributes }, words);
  const parts = [text("sent", LEFT, 16)];
  const rects = new Map();
  let y = TOP;
  for (const [layer, amount] of fixed) {
    const { colour, words } = LAYERS[layer];
    parts.push(svg("rect", { x: LEFT, y, width: WIDTH, height: amount * scale, fill: colour }, svg("title", {}, `${number(amount)} tokens: ${words}`)));
    if (amount * scale > 14) parts.push(text(layer === "tools" ? "tools" : "not recorded", LEFT + 6, y + (amount * scale) / 2 + 4, { fill: "#fff" }));
    y += amount * scale;
  }
  for (const entry of joinAlike(sent, scale)) {
    const height = Math.max(entry.tokens * scale, 0.4);
    const { colour } = LAYERS[entry.layer] || LAYERS.tools;
    const cache = CACHE[entry.cache];
    const rect = svg("rect", { class: "part", x: LEFT, y, width: WIDTH, height: Math.max(height - (height > 3 ? 0.7 : 0), 0.4), fill: colour, "fill-opacity": FORMS[entry.form].strength, stroke: entry.form === "STUB" ? colour : null, onclick: () => onSelect(entry.ref) }, svg("title", {}, `${entry.what}, ${number(entry.tokens)} tokens`));
    rects.set(entry.ref, rect);
    parts.push(rect, svg("rect", { x: LEFT - 8, y, width: 5, height, fill: cache ? cache.colour : "none" }));
    y += height;
  }
  if (blocks.length) parts.push(text("left out", GHOST_LEFT, 16));
  y = TOP;
  for (const { why, tokens: amount, refs } of blocks) {
    const height = Math.max(amount * scale, 2);
    const words = `${number(amount)} tokens in ${number(refs.length)}: ${why}`;
    const rect = svg("rect", { class: "part", x: GHOST_LEFT, y: y + 1, width: GHOST, height: Math.max(height - 2, 1), fill: "currentColor", "fill-opacity": 0.06, stroke: "currentColor", "stroke-dasharray": "3 3", onclick: () => onSelect(refs[0]) }, svg("title", {}, words));
    for (const ref of refs) if (!rects.has(ref)) rects.set(ref, rect);
    parts.push(rect);
    if (height > 16) parts.push(text(tokens(amount), GHOST_LEFT + 6, y + height / 2 + 4));
    y += height;
  }
  for (const marker of request.markers) {
    const at = TOP + marker.tokens * scale;
    parts.push(svg("path", { d: `M1 ${at - 5}L10 ${at}L1 ${at + 5}z` }), svg("line", { x1: 3.5, x2: 3.5, y1: at - 5, y2: TOP + marker.looks_back_to * scale, stroke: "currentColor", "stroke-opacity": 0.45 }));
  }
  const words = `${number(total)} tokens in ${sent.length} entries; ${number(hidden)} tokens were left out. The list beside it names them.`;
  const width = GHOST_LEFT + GHOST + 8;
  const height = HEIGHT + TOP + 6;
  const element = svg("svg", { class: "map", role: "img", "aria-label": words, width, height, viewBox: `0 0 ${width} ${height}`, fill: "currentColor", "font-size": 11 }, parts);
  return {
    element,
    select(ref) {
      for (const each of element.querySelectorAll(".current")) each.classList.remove("current");
      if (rects.has(ref)) rects.get(ref).classList.add("current");
    },
  };
}

function groupLeftOut(entries) {
  const groups = new Map();
  for (const entry of entries) {
    const amount = entry.form === "FULL" ? 0 : entry.full_tokens - entry.tokens;
    if (amount <= 0) continue;
    const group = groups.get(entry.why) || { why: entry.why, tokens: 0, refs: [] };
    group.tokens += amount;
    group.refs.push(entry.ref);
    groups.set(entry.why, group);
  }
  return [...groups.values()];
}

// Of thousands of entries only some hundred can be told apart: those that share a pixel and look alike are one.
function* joinAlike(entries, scale) {
  let run = null;
  for (const entry of entries) {
    const isAlike = run && run.layer === entry.layer && run.form === entry.form && run.cache === entry.cache;
    if (isAlike && run.tokens * scale < 1 && entry.tokens * scale < 1) {
      run.tokens += entry.tokens;
      continue;
    }
    if (run) yield run;
    run = { ...entry };
  }
  if (run) yield run;
}

// The list of entries. Only rows in sight are in the document, so that thousands of them stay quick.
export function makeList(request, { selected, onSelect, filter }) {
  const isGone = (entry) => entry.form === "OMITTED";
  const chosen = request.entries.filter(filter);
  const entries = [...chosen.filter((entry) => !isGone(entry)), ...chosen.filter(isGone)]; // what is there comes first
  const largest = entries.reduce((most, entry) => Math.max(most, size(entry)), 1);
  const spacer = h("div", { class: "spacer", role: "presentation", style: { height: `${entries.length * ROW}px` } });
  const list = h(
    "div",
    { class: "entries", role: "listbox", tabindex: "0", "aria-label": `${entries.length} entries of this request` },
    spacer,
  );
  let current = selected;
  function draw() {
    const first = Math.max(Math.floor(list.scrollTop / ROW) - 8, 0);
    const last = Math.min(first + Math.ceil((list.clientHeight || 640) / ROW) + 16, entries.length);
    const rows = entries.slice(first, last).map((entry, at) => makeRow(entry, first + at, { largest, current, onSelect, count: entries.length }));
    spacer.replaceChildren(...rows);
  }
  list.addEventListener("scroll", draw, { passive: true });
  list.addEventListener("keydown", (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!move || !entries.length) return;
    event.preventDefault();
    const at = entries.findIndex((entry) => entry.ref === current);
    const next = entries[Math.min(Math.max(at + move, 0), entries.length - 1)];
    onSelect(next.ref);
  });
  requestAnimationFrame(draw);
  return {
    element: list,
    select(ref) {
      current = ref;
      const at = entries.findIndex((entry) => entry.ref === ref);
      const top = at * ROW;
      const isInSight = top >= list.scrollTop && top <= list.scrollTop + list.clientHeight - ROW;
      if (at >= 0 && !isInSight) list.scrollTop = Math.max(top - list.clientHeight / 2, 0);
      draw();
    },
  };
}

const size = (entry) => Math.max(entry.tokens, entry.form === "FULL" ? 0 : entry.full_tokens || 0);

function makeRow(entry, at, { largest, current, onSelect, count }) {
  const look = LAYERS[entry.layer] || LAYERS.tools;
  const form = FORMS[entry.form];
  const cache = CACHE[entry.cache];
  const isGone = entry.form === "OMITTED";
  const isCurrent = entry.ref === current;
  return h(
    "div",
    {
      class: `entry${isGone ? " gone" : ""}${isCurrent ? " current" : ""}`,
      role: "option",
      "aria-selected": String(isCurrent),
      "aria-posinset": String(at + 1),
      "aria-setsize": String(count),
      "data-ref": entry.ref,
      style: { top: `${at * ROW}px` },
      title: `${entry.what} — ${form.words}${entry.why ? `: ${entry.why}` : ""}`,
      onclick: () => onSelect(entry.ref),
    },
    h("span", { class: "swatch", style: { background: look.colour }, title: look.words }, look.letter),
    h("span", { class: "form", title: form.words }, form.glyph),
    h("span", { class: "what" }, entry.what || entry.kind, h("span", { class: "preview" }, ` ${entry.preview}`)),
    h("span", { class: "why" }, entry.form === "FULL" ? "" : entry.why),
    h("span", { class: "cache", title: cache ? cache.words : "", style: { color: cache ? cache.colour : "" } }, cache ? cache.glyph : ""),
    h(
      "span",
      { class: "amount" },
      h("span", { class: "bar", style: { width: `${(46 * size(entry)) / largest}px`, background: look.colour } }),
      isGone ? `(${tokens(entry.full_tokens)})` : tokens(entry.tokens),
    ),
  );
}
