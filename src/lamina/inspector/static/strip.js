// The session strip: one bar for each request, from left to right, stacked by layer.
import { h, money, number, tokens, date, span } from "./dom.js";
import { LAYERS, fill } from "./colours.js";

const HEIGHT = 190;
const CACHE_HEIGHT = 26;
const TOP = 22;
const LEFT = 52;
const IDLE = 3600; // seconds after which a gap is drawn

export function makeStrip(session, { selected, onSelect, visible = null }) {
  const canvas = h("canvas", { class: "strip", role: "img", tabindex: "0" });
  const tip = h("div", { class: "tip", hidden: true });
  const box = h("div", { class: "strip-box" }, canvas, tip);
  const state = { selected, hover: null, visible };
  canvas.setAttribute("aria-label", describe(session));

  function place() {
    const width = Math.max(box.clientWidth, 280);
    const scale = window.devicePixelRatio || 1;
    const height = TOP + HEIGHT + CACHE_HEIGHT + 34 + (state.visible ? 16 : 0);
    canvas.width = width * scale;
    canvas.height = height * scale;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    draw(pen, session, layOut(session, width), state);
  }

  function callAt(event) {
    const { bars } = layOut(session, Math.max(box.clientWidth, 280));
    const x = event.clientX - canvas.getBoundingClientRect().left;
    let best = null;
    for (const bar of bars) if (x >= bar.x - 1) best = bar;
    return best;
  }

  canvas.addEventListener("click", (event) => {
    const bar = callAt(event);
    if (bar) onSelect(bar.call.number);
  });
  canvas.addEventListener("mousemove", (event) => {
    const bar = callAt(event);
    tip.hidden = !bar;
    if (!bar) return;
    tip.replaceChildren(...tipLines(bar.call, session));
    const width = box.clientWidth;
    tip.style.left = `${Math.min(Math.max(bar.x - 60, 0), width - 270)}px`;
    tip.style.top = `${TOP + HEIGHT + CACHE_HEIGHT + 40}px`;
  });
  canvas.addEventListener("mouseleave", () => {
    tip.hidden = true;
  });
  new ResizeObserver(place).observe(box);
  return {
    element: box,
    select(number) {
      state.selected = number;
      place();
    },
    show(states) {
      state.visible = states;
      place();
    },
  };
}

function describe(session) {
  const totals = session.totals;
  return `${totals.calls} requests, ${totals.cuts} cuts, ${totals.broken} lost prefixes, ${money(totals.dollars)}. Use j and k to go through them.`;
}

function tipLines(call, session) {
  const lines = [
    h("strong", {}, `Request ${call.number + 1} of ${session.calls.length}`),
    h("span", {}, date(call.at)),
    h("span", {}, call.error ? `failed: ${call.error}` : `${number(call.tokens)} tokens, ${money(call.dollars)}`),
    h("span", {}, `${tokens(call.read)} read · ${tokens(call.written)} written · ${tokens(call.uncached)} paid in full`),
  ];
  if (call.idle > IDLE) lines.push(h("span", {}, `after a pause of ${span(call.idle)}`));
  if (call.cut) lines.push(h("span", { class: "bad" }, `✂ cut: ${call.cut}; ${number(call.cut_lowered)} segments`));
  if (!call.continues) lines.push(h("span", { class: "bad" }, `▼ prefix lost: ${call.miss || "what was sent before has changed"}`));
  return lines;
}

function layOut(session, width) {
  const count = session.calls.length;
  const usable = width - LEFT - 8;
  const gaps = session.calls.map((call) => call.idle > IDLE);
  const gapWidth = Math.min(10, usable / Math.max(count, 1));
  const room = usable - gapWidth * gaps.filter(Boolean).length;
  const step = room / Math.max(count, 1);
  const bars = [];
  let x = LEFT;
  session.calls.forEach((call, at) => {
    if (gaps[at]) x += gapWidth;
    bars.push({ call, x, width: Math.max(step - (step > 4 ? 1 : 0), 0.5), gap: gaps[at] });
    x += step;
  });
  const limits = session.limits;
  const largest = Math.max(session.totals.largest, limits.room || 0, 1);
  return { bars, largest: largest * 1.04 };
}

function draw(pen, session, { bars, largest }, state) {
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--ink").trim();
  const faint = style.getPropertyValue("--faint").trim();
  const bad = style.getPropertyValue("--bad").trim();
  const y = (amount) => TOP + HEIGHT - (HEIGHT * amount) / largest;
  pen.clearRect(0, 0, pen.canvas.width, pen.canvas.height);
  pen.font = "11px system-ui, sans-serif";
  pen.fillStyle = faint;
  pen.strokeStyle = style.getPropertyValue("--line").trim();
  for (const share of [0.25, 0.5, 0.75, 1]) {
    const amount = niceAmount(largest * share);
    pen.beginPath();
    pen.moveTo(LEFT, y(amount));
    pen.lineTo(bars.length ? bars[bars.length - 1].x + bars[bars.length - 1].width : LEFT, y(amount));
    pen.stroke();
    pen.textAlign = "right";
    pen.fillText(tokens(amount), LEFT - 8, y(amount) + 4);
  }
  for (const bar of bars) drawBar(pen, bar, session, y, { ink, faint, bad, state });
  drawLimits(pen, session.limits, bars, y, { ink, faint });
  drawCostLine(pen, bars, ink);
  pen.fillStyle = faint;
  pen.textAlign = "left";
  const foot = TOP + HEIGHT + CACHE_HEIGHT + 28;
  if (bars.length) {
    pen.fillText(date(bars[0].call.at), LEFT, foot);
    pen.textAlign = "right";
    const last = bars[bars.length - 1];
    if (bars.length > 1) pen.fillText(date(last.call.at), last.x + last.width, foot);
  }
  pen.textAlign = "right";
  pen.fillText("cache", LEFT - 8, TOP + HEIGHT + 20);
}

function niceAmount(amount) {
  const size = 10 ** Math.floor(Math.log10(Math.max(amount, 1)));
  return Math.round((amount / size) * 2) / 2 * size;
}

function drawBar(pen, bar, session, y, { ink, faint, bad, state }) {
  const { call, x, width } = bar;
  if (bar.gap) {
    pen.fillStyle = faint;
    pen.fillRect(x - 6, TOP, 1, HEIGHT);
    pen.textAlign = "center";
    if (width > 5) pen.fillText("⏸", x - 5, TOP + HEIGHT - 4);
  }
  if (call.error) {
    pen.fillStyle = bad;
    pen.fillRect(x, TOP + HEIGHT - 6, width, 6);
    return;
  }
  let bottom = 0;
  for (const [layer, amount] of Object.entries(call.layers)) {
    pen.fillStyle = fill(pen, layer);
    pen.fillRect(x, y(bottom + amount), width, y(bottom) - y(bottom + amount));
    bottom += amount;
  }
  if (call.tokens > bottom) {
    pen.fillStyle = fill(pen, "tools");
    pen.fillRect(x, y(call.tokens), width, y(bottom) - y(call.tokens));
  }
  const all = Math.max(call.read + call.written + call.uncached, 1);
  const cacheTop = TOP + HEIGHT + 8;
  const shares = [
    [call.read, "#009e73"],
    [call.written, "#e69f00"],
    [call.uncached, "#d55e00"],
  ];
  let at = cacheTop + 18;
  for (const [amount, colour] of shares) {
    const height = (18 * amount) / all;
    pen.fillStyle = colour;
    pen.fillRect(x, at - height, width, height);
    at -= height;
  }
  if (call.cut || !call.continues) {
    pen.fillStyle = bad;
    pen.textAlign = "center";
    pen.fillText(call.cut ? "✂" : "▼", x + width / 2, TOP - 6);
    pen.fillRect(x + width / 2 - 0.5, TOP - 3, 1, 5);
  }
  if (state.visible) {
    const shown = state.visible[call.number];
    pen.fillStyle = { full: "#009e73", part: "#e69f00", recall: bad }[shown] || "transparent";
    pen.fillRect(x, cacheTop + 24, width, 8);
  }
  if (call.number === state.selected) {
    pen.strokeStyle = ink;
    pen.lineWidth = 2;
    pen.strokeRect(x - 1.5, TOP - 1, width + 3, HEIGHT + 30);
    pen.lineWidth = 1;
  }
}

function drawLimits(pen, limits, bars, y, { ink, faint }) {
  if (!bars.length) return;
  const end = bars[bars.length - 1].x + bars[bars.length - 1].width;
  for (const [name, amount, dash] of [
    ["room", limits.room, []],
    ["trigger", limits.trigger, [6, 3]],
    ["target", limits.target, [2, 3]],
  ]) {
    if (!amount) continue;
    pen.strokeStyle = ink;
    pen.setLineDash(dash);
    pen.beginPath();
    pen.moveTo(LEFT, y(amount));
    pen.lineTo(end, y(amount));
    pen.stroke();
    pen.setLineDash([]);
    pen.fillStyle = faint;
    pen.textAlign = name === "trigger" ? "right" : "left";
    pen.fillText(name, name === "trigger" ? end : LEFT + 4, y(amount) + (name === "trigger" ? 12 : -3));
  }
}

function drawCostLine(pen, bars, ink) {
  const total = bars.reduce((sum, bar) => sum + (bar.call.dollars || 0), 0);
  if (!total) return;
  let spent = 0;
  pen.strokeStyle = ink;
  pen.globalAlpha = 0.8;
  pen.beginPath();
  bars.forEach((bar, at) => {
    spent += bar.call.dollars || 0;
    const height = TOP + HEIGHT - HEIGHT * (spent / total);
    if (at) pen.lineTo(bar.x + bar.width, height);
    else pen.moveTo(bar.x, height);
  });
  pen.stroke();
  pen.globalAlpha = 1;
}

export function makeLegend(session) {
  const used = new Set(session.calls.flatMap((call) => Object.keys(call.layers)));
  const items = Object.entries(LAYERS)
    .filter(([name]) => used.has(name))
    .map(([name, look]) =>
      h("li", {}, h("span", { class: "swatch", style: { background: look.colour } }, look.letter), `${look.words}`),
    );
  return h(
    "ul",
    { class: "legend" },
    items,
    h("li", {}, h("span", { class: "swatch", style: { background: "#009e73" } }, "●"), "read from the cache"),
    h("li", {}, h("span", { class: "swatch", style: { background: "#e69f00" } }, "◐"), "written"),
    h("li", {}, h("span", { class: "swatch", style: { background: "#d55e00" } }, "○"), "paid in full"),
    h("li", {}, h("span", { class: "glyph" }, "✂"), "cut"),
    h("li", {}, h("span", { class: "glyph" }, "▼"), "prefix lost"),
    h("li", {}, h("span", { class: "glyph" }, "╱"), "cost so far"),
  );
}
