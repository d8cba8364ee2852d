// The window map of one request: what was sent, in its order and by its size; beside it what was left out.
import { h, number, tokens } from "./dom.js";
import { CACHE, FORMS, LAYERS, fill } from "./colours.js";

const WIDTH = 130;
const GHOST = 64;
const HEIGHT = 620;
const ROW = 30;

export function makeMap(request, { selected, onSelect }) {
  const entries = request.entries;
  const sent = entries.filter((entry) => entry.form !== "OMITTED");
  const ghosts = entries.filter((entry) => entry.form !== "FULL" && entry.full_tokens > entry.tokens);
  const total = sent.reduce((sum, entry) => sum + entry.tokens, 0) + (request.tools || 0);
  const ghostTotal = ghosts.reduce((sum, entry) => sum + entry.full_tokens - entry.tokens, 0);
  const room = request.limits.room || total;
  const scale = HEIGHT / Math.max(room, total, ghostTotal, 1);
  const canvas = h("canvas", { class: "map", role: "img" });
  canvas.setAttribute(
    "aria-label",
    `${number(total)} tokens in ${sent.length} entries; ${number(ghostTotal)} tokens were left out. The list beside it names them.`,
  );
  const ratio = window.devicePixelRatio || 1;
  canvas.width = (WIDTH + GHOST + 24) * ratio;
  canvas.height = (HEIGHT + 24) * ratio;
  canvas.style.width = `${WIDTH + GHOST + 24}px`;
  canvas.style.height = `${HEIGHT + 24}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const boxes = [];
  function paint(current) {
    boxes.length = 0;
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink").trim();
    const line = style.getPropertyValue("--line").trim();
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = style.getPropertyValue("--faint").trim();
    pen.fillText("sent", 10, 11);
    if (ghosts.length) pen.fillText("left out", WIDTH + 20, 11);
    let y = 18;
    if (request.tools) {
      pen.fillStyle = fill(pen, "tools");
      pen.fillRect(10, y, WIDTH, Math.max(request.tools * scale, 1));
      y += request.tools * scale;
    }
    for (const entry of sent) {
      const height = Math.max(entry.tokens * scale, 0.4);
      pen.fillStyle = fill(pen, entry.layer, entry.form);
      pen.fillRect(10, y, WIDTH, height);
      if (entry.form === "STUB" && height > 2) {
        pen.strokeStyle = LAYERS[entry.layer].colour;
        pen.strokeRect(10.5, y + 0.5, WIDTH - 1, height - 1);
      }
      pen.fillStyle = { read: "#009e73", written: "#e69f00", uncached: "#d55e00" }[entry.cache] || line;
      pen.fillRect(2, y, 5, Math.max(height, 0.6));
      if (height > 3) {
        pen.fillStyle = style.getPropertyValue("--paper").trim();
        pen.fillRect(10, y + height - 0.5, WIDTH, 0.5);
      }
      boxes.push({ entry, y, height, x: 0, width: WIDTH + 10 });
      if (entry.ref === current) outline(pen, 9, y, WIDTH + 2, height, ink);
      y += height;
    }
    if (request.limits.room && y < 18 + HEIGHT) {
      pen.strokeStyle = line;
      pen.setLineDash([3, 3]);
      pen.strokeRect(10.5, y + 0.5, WIDTH - 1, 18 + room * scale - y - 1);
      pen.setLineDash([]);
      pen.fillStyle = style.getPropertyValue("--faint").trim();
      const free = Math.max(room - total, 0);
      if (free * scale > 16) pen.fillText(`${tokens(free)} free`, 18, y + 14);
    }
    let ghostY = 18;
    for (const entry of ghosts) {
      const height = Math.max((entry.full_tokens - entry.tokens) * scale, 0.4);
      pen.strokeStyle = LAYERS[entry.layer].colour;
      pen.setLineDash([2, 2]);
      if (height > 3) pen.strokeRect(WIDTH + 20.5, ghostY + 0.5, GHOST - 1, height - 1);
      else {
        pen.fillStyle = LAYERS[entry.layer].colour;
        pen.globalAlpha = 0.35;
        pen.fillRect(WIDTH + 20, ghostY, GHOST, height);
        pen.globalAlpha = 1;
      }
      pen.setLineDash([]);
      boxes.push({ entry, y: ghostY, height, x: WIDTH + 16, width: GHOST + 8 });
      if (entry.ref === current) outline(pen, WIDTH + 19, ghostY, GHOST + 2, height, ink);
      ghostY += height;
    }
  }
  canvas.addEventListener("click", (event) => {
    const bounds = canvas.getBoundingClientRect();
    const x = event.clientX - bounds.left;
    const y = event.clientY - bounds.top;
    const box = boxes.find((each) => x >= each.x && x < each.x + each.width && y >= each.y && y < each.y + each.height);
    if (box) onSelect(box.entry.ref);
  });
  paint(selected);
  return { element: canvas, select: paint };
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
  const largest = Math.max(...entries.map(size), 1);
  const spacer = h("div", { class: "spacer", style: { height: `${entries.length * ROW}px` } });
  const list = h("div", {
    class: "entries",
    role: "listbox",
    tabindex: "0",
    "aria-label": `${entries.length} entries of this request`,
  }, spacer);
  let current = selected;
  function draw() {
    const first = Math.max(Math.floor(list.scrollTop / ROW) - 8, 0);
    const last = Math.min(first + Math.ceil((list.clientHeight || 640) / ROW) + 16, entries.length);
    spacer.replaceChildren(
      ...entries.slice(first, last).map((entry, at) => makeRow(entry, first + at, largest, current, onSelect)),
    );
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
      if (at >= 0 && (top < list.scrollTop || top > list.scrollTop + list.clientHeight - ROW)) {
        list.scrollTop = Math.max(top - list.clientHeight / 2, 0);
      }
      draw();
    },
  };
}

const size = (entry) => Math.max(entry.tokens, entry.form === "FULL" ? 0 : entry.full_tokens || 0);

function makeRow(entry, at, largest, current, onSelect) {
  const look = LAYERS[entry.layer] || LAYERS.tools;
  const form = FORMS[entry.form];
  const cache = CACHE[entry.cache];
  const isGone = entry.form === "OMITTED";
  return h(
    "div",
    {
      class: `entry${isGone ? " gone" : ""}${entry.ref === current ? " current" : ""}`,
      role: "option",
      "aria-selected": String(entry.ref === current),
      style: { top: `${at * ROW}px` },
      title: `${entry.what} — ${form.words}${entry.why ? `: ${entry.why}` : ""}`,
      onclick: () => onSelect(entry.ref),
    },
    h("span", { class: "swatch", style: { background: look.colour }, title: look.words }, look.letter),
    h("span", { class: "form", title: form.words }, form.glyph),
    h("span", { class: "what" }, entry.what || entry.kind, h("span", { class: "preview" }, ` ${entry.preview}`)),
    h("span", { class: "why" }, entry.form === "FULL" ? "" : entry.why),
    h("span", { class: "cache", title: cache ? cache.words : "" }, cache ? cache.glyph : ""),
    h(
      "span",
      { class: "amount" },
      h("span", { class: "bar", style: { width: `${(46 * size(entry)) / largest}px`, background: look.colour } }),
      isGone ? `(${tokens(entry.full_tokens)})` : tokens(entry.tokens),
    ),
  );
}
