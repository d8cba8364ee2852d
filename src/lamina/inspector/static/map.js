// The window map of one request: what was sent, in its order and by its size; beside it what was left out.
import { h, number, tokens } from "./dom.js";
import { CACHE, FORMS, LAYERS, fill, theme } from "./colours.js";

const LEFT = 22;
const WIDTH = 116;
const GHOST_LEFT = LEFT + WIDTH + 12;
const GHOST = 60;
const TOP = 24;
const HEIGHT = 614;
const ROW = 30;

export function makeMap(request, { selected, onSelect }) {
  const entries = request.entries;
  const sent = entries.filter((entry) => entry.form !== "OMITTED");
  const ghosts = entries.filter((entry) => entry.form !== "FULL" && entry.full_tokens > entry.tokens);
  const fixed = [["unrecorded", request.unrecorded || 0], ["tools", request.tools || 0]];
  const fixedTotal = fixed.reduce((sum, [, amount]) => sum + amount, 0);
  const total = sent.reduce((sum, entry) => sum + entry.tokens, 0) + fixedTotal;
  const ghostTotal = ghosts.reduce((sum, entry) => sum + entry.full_tokens - entry.tokens, 0);
  const scale = HEIGHT / Math.max(total, ghostTotal, 1);
  const words = `${number(total)} tokens in ${sent.length} entries; ${number(ghostTotal)} tokens were left out. The list beside it names them.`;
  const canvas = h("canvas", { class: "map", role: "img", "aria-label": words });
  const ratio = globalThis.devicePixelRatio || 1;
  const width = GHOST_LEFT + GHOST + 8;
  canvas.width = width * ratio;
  canvas.height = (HEIGHT + TOP + 6) * ratio;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${HEIGHT + TOP + 6}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const boxes = [];

  function paint(current) {
    const colours = theme();
    boxes.length = 0;
    pen.clearRect(0, 0, width, HEIGHT + TOP + 6);
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "left";
    pen.fillStyle = colours.faint;
    pen.fillText("sent", LEFT, 16);
    if (ghosts.length) pen.fillText("left out", GHOST_LEFT, 16);
    let y = TOP;
    for (const [layer, amount] of fixed) {
      if (!amount) continue;
      const height = Math.max(amount * scale, 1);
      pen.fillStyle = fill(pen, layer);
      pen.fillRect(LEFT, y, WIDTH, height);
      if (height > 14) label(pen, layer === "tools" ? "tools" : `≈ ${tokens(amount)} unknown`, y + height / 2 + 4);
      y += height;
    }
    const painted = makeRuns(pen, colours);
    let outlined = null;
    for (const entry of sent) {
      const height = Math.max(entry.tokens * scale, 0.4);
      painted.add(entry, y, height);
      boxes.push({ entry, y, height, x: 0, width: LEFT + WIDTH + 4 });
      if (entry.ref === current) outlined = { y, height };
      y += height;
    }
    painted.end();
    if (outlined) outline(pen, LEFT - 1, outlined.y, WIDTH + 2, outlined.height, colours.ink);
    drawGhosts(pen, ghosts, scale, current, boxes, colours);
    drawMarkers(pen, request.markers || [], scale, colours);
  }
  canvas.addEventListener("click", (event) => {
    const bounds = canvas.getBoundingClientRect();
    const x = event.clientX - bounds.left;
    const y = event.clientY - bounds.top;
    const isHit = (box) => x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + Math.max(box.height, 1);
    const box = boxes.find(isHit);
    if (box) onSelect(box.entry.ref);
  });
  let current = selected;
  paint(current);
  return {
    element: canvas,
    select(ref) {
      if (ref === current) return;
      current = ref;
      paint(current);
    },
  };
}

// Entries that share a pixel and look alike are painted as one: of ten thousand entries only some hundred can be told
// apart.
function makeRuns(pen, colours) {
  let run = null;
  function end() {
    if (run) drawEntry(pen, run.entry, run.y, run.height, colours);
    run = null;
  }
  function add(entry, y, height) {
    const isAlike = run && run.entry.layer === entry.layer && run.entry.form === entry.form && run.entry.cache === entry.cache;
    if (run && run.height < 1 && height < 1 && isAlike) {
      run.height += height;
      return;
    }
    end();
    run = { entry, y, height };
  }
  return { add, end };
}

function label(pen, words, y) {
  pen.fillStyle = "#fff";
  pen.shadowColor = "rgba(0,0,0,.7)";
  pen.shadowBlur = 3;
  pen.fillText(words, LEFT + 6, y);
  pen.shadowBlur = 0;
}

function drawEntry(pen, entry, y, height, { line, paper }) {
  pen.fillStyle = fill(pen, entry.layer, entry.form);
  pen.fillRect(LEFT, y, WIDTH, height);
  if (entry.form === "STUB" && height > 2) {
    pen.strokeStyle = LAYERS[entry.layer].colour;
    pen.strokeRect(LEFT + 0.5, y + 0.5, WIDTH - 1, height - 1);
  }
  const cache = CACHE[entry.cache];
  pen.fillStyle = cache ? cache.colour : line;
  pen.fillRect(LEFT - 8, y, 5, Math.max(height, 0.6));
  if (height > 3) {
    pen.fillStyle = paper;
    pen.fillRect(LEFT, y + height - 0.5, WIDTH, 0.5);
  }
}

function drawGhosts(pen, ghosts, scale, current, boxes, { ink }) {
  let y = TOP;
  for (const entry of ghosts) {
    const height = Math.max((entry.full_tokens - entry.tokens) * scale, 0.4);
    pen.strokeStyle = LAYERS[entry.layer].colour;
    pen.setLineDash([2, 2]);
    if (height > 3) pen.strokeRect(GHOST_LEFT + 0.5, y + 0.5, GHOST - 1, height - 1);
    else {
      pen.fillStyle = LAYERS[entry.layer].colour;
      pen.globalAlpha = 0.35;
      pen.fillRect(GHOST_LEFT, y, GHOST, height);
      pen.globalAlpha = 1;
    }
    pen.setLineDash([]);
    boxes.push({ entry, y, height, x: GHOST_LEFT - 4, width: GHOST + 8 });
    if (entry.ref === current) outline(pen, GHOST_LEFT - 1, y, GHOST + 2, height, ink);
    y += height;
  }
}

// A cache marker is a wedge at the left edge; the line above it shows how far back the cache is searched from it.
function drawMarkers(pen, markers, scale, { ink }) {
  pen.fillStyle = ink;
  pen.strokeStyle = ink;
  for (const marker of markers) {
    const y = TOP + marker.tokens * scale;
    pen.beginPath();
    pen.moveTo(1, y - 5);
    pen.lineTo(10, y);
    pen.lineTo(1, y + 5);
    pen.fill();
    pen.globalAlpha = 0.45;
    pen.beginPath();
    pen.moveTo(3.5, y - 5);
    pen.lineTo(3.5, TOP + marker.looks_back_to * scale);
    pen.stroke();
    pen.globalAlpha = 1;
  }
}

function outline(pen, x, y, width, height, ink) {
  pen.strokeStyle = ink;
  pen.lineWidth = 2;
  pen.strokeRect(x, y, width, Math.max(height, 3));
  pen.lineWidth = 1;
}

// The list of entries. Only rows in sight are in the document, so that thousands of them stay quick.
export function makeList(request, { selected, onSelect, sort, filter }) {
  let entries = request.entries.filter((entry) => filter(entry));
  if (sort === "size") entries = [...entries].sort((one, other) => size(other) - size(one));
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
