// The picture of a session: one bar for each request, by what the cache read of it, what was written to it and what was
// paid, under the dashed line of what would have been sent without lamina. Cuts are marks. Below stands what each
// request cost, and sub-agents have lanes of their own.
import { atLeast, date, h, money, number, plural, span, svg, tokens } from "./dom.js";
import { CACHE, COST } from "./colours.js";

const TOP = 62; // above it stand the sum, and the marks
const HEIGHT = 110;
const COST_TOP = TOP + HEIGHT + 8;
const COST_HEIGHT = 22;
const DATES = COST_TOP + COST_HEIGHT + 15;
const LANE = 24;
const LEFT = 56;
const RIGHT = 10;
const IDLE = 3600; // seconds after which a pause is marked
const WIDEST = 40; // pixels of a bar

export function makePicture(session, { selected = null, onSelect, onLane }) {
  const tip = h("div", { class: "tip", hidden: true });
  const box = h("div", { class: "picture-box" });
  let layout = null;
  let chosen = selected;
  let drawing = null;

  function draw() {
    layout = layOut(session, Math.max(box.clientWidth, 260));
    const hadFocus = drawing && drawing === document.activeElement;
    drawing = drawPicture(session, layout);
    drawing.addEventListener("click", onClick);
    drawing.addEventListener("mousemove", onMove);
    drawing.addEventListener("keydown", onKey);
    drawing.addEventListener("mouseleave", () => (tip.hidden = true));
    box.replaceChildren(drawing, tip);
    markSelected();
    if (hadFocus) drawing.focus();
  }

  function markSelected() {
    const mark = drawing.querySelector(".selected");
    const bar = layout.bars[chosen];
    mark.setAttribute("visibility", bar ? "visible" : "hidden");
    if (!bar) return;
    mark.setAttribute("x", bar.x - 2);
    mark.setAttribute("width", Math.max(bar.width + 4, 5));
  }

  function findBar(event) {
    const bounds = drawing.getBoundingClientRect();
    const x = event.clientX - bounds.left;
    const y = event.clientY - bounds.top;
    const lane = layout.lanes.find((each) => y >= each.y && y < each.y + LANE) || null;
    const bars = lane ? lane.bars : layout.bars;
    return { lane, bar: bars.findLast((bar) => x >= bar.x - 1) || bars[0] };
  }

  function onClick(event) {
    const { lane, bar } = findBar(event);
    if (lane && bar) onLane(lane.id, bar.call.number);
    else if (bar) onSelect(bar.call.number);
  }

  function onMove(event) {
    const { lane, bar } = findBar(event);
    tip.hidden = !bar;
    if (!bar) return;
    tip.replaceChildren(...(lane ? describeLane(lane, bar.call) : describeCall(bar.call, session)));
    tip.style.left = `${Math.max(Math.min(bar.x - 60, box.clientWidth - 290), 0)}px`;
    tip.style.top = `${layout.height + 4}px`;
  }

  function onKey(event) {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move) return;
    event.preventDefault();
    if (session.calls[chosen + move]) onSelect(chosen + move);
  }

  // It is drawn in the next frame: a change of size while sizes are observed is a complaint of the browser.
  new ResizeObserver(() => requestAnimationFrame(draw)).observe(box);
  return {
    element: box,
    select(number) {
      chosen = number;
      if (layout) markSelected();
    },
  };
}

// A request that lost its cache, other than by a cut that lamina made.
const isLost = (call) => Boolean(call.loss && call.loss.by !== "lamina");

// "$0.74 instead of $1.19": what it cost, and what it would have cost without lamina.
export function sumUp({ dollars, is_at_least, without, could }) {
  const cost = atLeast(dollars, is_at_least);
  if (could !== null) return `${cost}, about ${money(could)} with lamina run`;
  if (without === null || dollars === null || Math.abs(without - dollars) < 0.00005) return cost;
  return `${cost} instead of ${money(without)}`;
}

// Why nobody can say what it would have cost, or where the difference comes from: what stands after the sum in words.
export function describeSum({ without, without_words }) {
  const words = without_words.replace(/^[^:]*: /, "");
  if (!without_words.includes(": ")) return "";
  return without === null ? `What it would have cost without lamina is not known: ${words}.` : `${words[0].toUpperCase()}${words.slice(1)}.`;
}

export function listCounts(session) {
  const { totals, lanes, calls } = session;
  const all = totals.read + totals.written + totals.uncached;
  return [
    plural(totals.calls, "request"),
    plural(totals.cuts, "cut"),
    totals.lost ? plural(totals.lost, "lost cache") : "",
    totals.refused ? plural(totals.refused, "refused request") : "",
    calls.some((call) => call.compacted) ? plural(calls.filter((call) => call.compacted).length, "compaction of the client", "compactions of the client") : "",
    lanes.length ? plural(lanes.length, "sub-agent") : "",
    all ? `${Math.round((100 * totals.read) / all)} % read from the cache` : "",
    `${tokens(totals.largest + session.unrecorded)} of ${tokens(session.window)} tokens at most`,
  ].filter(Boolean);
}

function describeCall(call, session) {
  const lines = [h("strong", {}, `Request ${call.number + 1} of ${session.calls.length}`), h("span", {}, date(call.at))];
  const add = (words, look = null) => lines.push(h("span", { class: look }, words));
  add(`${number(call.tokens)} tokens, ${money(call.dollars)}`);
  if (call.whole !== null && call.whole > call.tokens) add(`${number(call.whole)} tokens without lamina`);
  if (call.reported !== null) add(`${tokens(call.read)} read · ${tokens(call.written)} written · ${tokens(call.uncached)} paid in full`);
  if (call.idle > IDLE) add(`‖ after a pause of ${span(call.idle)}`);
  for (const words of listEvents(call)) add(words, words.startsWith("▼") || words.startsWith("✕") ? "bad" : null);
  return lines;
}

// What happened at a request, in words, each with the sign that the picture has for it.
export function listEvents(call) {
  const events = [];
  if (call.refusal) events.push(call.is_open ? call.refusal : `✕ ${call.refusal}`);
  if (call.cut) events.push(`✂ cut: ${call.cut}; ${plural(call.cut_lowered, "piece")} shortened or left out${describePrice(call.loss)}`);
  if (isLost(call)) events.push(`▼ the cache was lost: ${call.loss.why}${describePrice(call.loss)}`);
  if (call.follows !== null) events.push(call.why ? `↺ sent again: ${call.why}` : "↺ sent with what the model recalled");
  if (call.recalled) events.push("the answer recalled something");
  if (call.compacted) events.push("◇ compacted by the client");
  return events;
}

// "; it cost 5K tokens, $0.02, and saved $0.10 until the next cut"
function describePrice(loss) {
  if (!loss) return "";
  const price = loss.dollars === null ? "" : `, ${money(loss.dollars)}`;
  const saved = loss.saved === null ? "" : `, and saved ${money(loss.saved)} until the next cut`;
  return `; it cost ${tokens(loss.tokens)} tokens${price}${saved}`;
}

function describeLane(lane, call) {
  const size = call.tokens === null ? "size not recorded" : `${number(call.tokens)} tokens`;
  return [h("strong", {}, `Sub-agent, request ${call.number + 1}`), h("span", {}, lane.first_words || lane.name), h("span", {}, `${date(call.at)} · ${size}`)];
}

function layOut(session, width) {
  const { calls } = session;
  const step = Math.min((width - LEFT - RIGHT) / Math.max(calls.length, 1), WIDEST + 2);
  const barWidth = Math.max(step - (step > 4 ? 1 : 0), 0.5);
  const bars = calls.map((call, at) => ({ call, x: LEFT + at * step, width: barWidth }));
  let largest = 1;
  let dearest = 0;
  for (const call of calls) {
    largest = Math.max(largest, call.tokens, call.whole || 0);
    dearest = Math.max(dearest, call.dollars || 0);
  }
  const lanes = session.lanes.map((lane, at) => ({ ...lane, y: DATES + 6 + at * LANE, bars: placeLane(lane.calls, bars) }));
  return { bars, lanes, width, step, dearest, end: LEFT + calls.length * step, height: DATES + 8 + lanes.length * LANE, y: (amount) => TOP + HEIGHT - (HEIGHT * amount) / (largest * 1.15), largest };
}

// Bars of a sub-agent stand under the request of its parent that was sent last before them.
function placeLane(calls, bars) {
  const groups = new Map();
  for (const call of calls) {
    const parent = bars.findLast((bar) => bar.call.at !== null && call.at !== null && bar.call.at <= call.at) || bars[0];
    groups.set(parent, [...(groups.get(parent) || []), call]);
  }
  const placed = [];
  for (const [parent, group] of groups) {
    const width = Math.max((parent.width + 1) / group.length, 2);
    group.forEach((call, at) => placed.push({ call, x: parent.x + at * width, width: width - 1 }));
  }
  return placed.sort((one, other) => one.x - other.x);
}

function drawPicture(session, layout) {
  const { totals, calls } = session;
  const text = (words, x, y, attributes = {}) => svg("text", { x, y, ...attributes }, words);
  const words = `${sumUp(totals)}. ${listCounts(session).join(", ")}. Arrow keys go through the requests.`;
  return svg(
    "svg",
    { class: "picture", role: "img", tabindex: "0", "aria-label": words, width: layout.width, height: layout.height, viewBox: `0 0 ${layout.width} ${layout.height}`, fill: "currentColor", "font-size": 11 },
    text(sumUp(totals), LEFT, 22, { class: "sum", "font-size": 19, "font-weight": 600 }),
    drawScale(session, layout, text),
    drawBars(layout),
    drawWhole(calls, layout, text),
    drawMarks(layout, text),
    text("cost", LEFT - 8, COST_TOP + COST_HEIGHT, { "text-anchor": "end" }),
    layout.dearest ? text(money(layout.dearest), LEFT - 8, COST_TOP + 9, { "text-anchor": "end" }) : null,
    text(date(calls[0].at), LEFT, DATES),
    calls.length > 1 && layout.end > LEFT + 240 ? text(date(calls[calls.length - 1].at), layout.end, DATES, { "text-anchor": "end" }) : null,
    layout.lanes.map((lane) => drawLane(lane, layout, text)),
    svg("rect", { class: "selected", y: TOP - 3, height: COST_TOP + COST_HEIGHT - TOP + 6, fill: "none", stroke: "currentColor", "stroke-width": 2, rx: 2, visibility: "hidden" }),
  );
}

const line = (y, end, attributes) => svg("line", { x1: LEFT, x2: end, y1: y, y2: y, stroke: "currentColor", "stroke-opacity": 0.25, ...attributes });

function drawScale(session, { largest, y, end }, text) {
  const size = 10 ** Math.floor(Math.log10(largest / 2));
  const step = [5, 2, 1].map((each) => each * size).find((each) => each <= largest / 2) || size;
  const parts = [line(y(0) + 0.5, end), line(COST_TOP + COST_HEIGHT + 0.5, end)];
  for (let amount = step; amount <= largest; amount += step) parts.push(line(y(amount), end), text(tokens(amount), LEFT - 8, y(amount) + 4, { "text-anchor": "end" }));
  if (session.window <= largest * 1.1) parts.push(line(y(session.window), end, { "stroke-opacity": 0.8, "stroke-dasharray": "1 3" }), text("window", LEFT + 4, y(session.window) - 3));
  return parts;
}

// One path for each colour. Of several bars that share a pixel, the largest is drawn.
function drawBars({ bars, step, y, dearest }) {
  const paths = { read: "", written: "", uncached: "", unknown: "", cost: "" };
  const rect = (x, top, width, bottom) => `M${x.toFixed(1)} ${top.toFixed(1)}h${width.toFixed(1)}V${bottom.toFixed(1)}h${(-width).toFixed(1)}z`;
  for (const { call, x, width } of thin(bars, step)) {
    let bottom = 0;
    for (const name of ["read", "written", "uncached"]) {
      if (!call[name]) continue;
      paths[name] += rect(x, y(bottom + call[name]), width, y(bottom));
      bottom += call[name];
    }
    if (!bottom && call.tokens) paths.unknown += rect(x, y(call.tokens), width, y(0));
    if (call.dollars && dearest) paths.cost += rect(x, COST_TOP + COST_HEIGHT - Math.max((COST_HEIGHT * call.dollars) / dearest, 1), width, COST_TOP + COST_HEIGHT);
  }
  const colours = { read: CACHE.read.colour, written: CACHE.written.colour, uncached: CACHE.uncached.colour, cost: COST };
  return Object.entries(paths).map(([name, d]) => svg("path", name === "unknown" ? { d, fill: "none", stroke: "currentColor", "stroke-opacity": 0.6 } : { d, fill: colours[name] }));
}

function thin(bars, step) {
  if (step >= 1) return bars;
  const largest = new Map();
  for (const bar of bars) {
    const other = largest.get(Math.floor(bar.x));
    if (!other || bar.call.tokens > other.call.tokens) largest.set(Math.floor(bar.x), { ...bar, width: 1 });
  }
  return [...largest.values()];
}

// The dashed line of what would have been sent, where lamina left something out.
function drawWhole(calls, { bars, y, end }, text) {
  if (!calls.some((call) => call.whole > call.tokens)) return null;
  const points = bars.filter(({ call }) => call.whole !== null).map(({ call, x, width }) => `${(x + width / 2).toFixed(1)},${y(call.whole).toFixed(1)}`);
  const last = calls.findLast((call) => call.whole !== null);
  return [
    svg("polyline", { class: "whole", points: points.join(" "), fill: "none", stroke: "currentColor", "stroke-width": 1.5, "stroke-dasharray": "5 4" }),
    text(`${tokens(last.whole)} without lamina`, end, y(last.whole) - 7, { "text-anchor": "end" }),
  ];
}

// The sign of a request: a refusal, a cut, a lost cache, a recall, a compaction of the client, a pause.
function signOf(call) {
  if (call.refusal && !call.is_open) return ["✕", String(call.status || "error")];
  if (call.cut) return ["✂", "cut"];
  if (isLost(call)) return ["▼", "lost"];
  if (call.follows !== null) return ["↺", call.why ? "again" : "recall"];
  if (call.compacted) return ["◇", "compacted"];
  return call.idle > IDLE ? ["‖", span(call.idle)] : null;
}

// Signs stand above their bars, with a word where there is room for it. Those that would cover each other are left out.
function drawMarks({ bars }, text) {
  const signs = [];
  for (const { call, x, width } of bars) {
    const sign = signOf(call);
    if (sign) signs.push([x + width / 2, ...sign]);
  }
  let free = 0;
  return signs.map(([middle, glyph, word], at) => {
    const tick = svg("line", { x1: middle, x2: middle, y1: TOP - 8, y2: TOP - 1, stroke: "currentColor" });
    if (middle < free) return tick;
    const room = signs[at + 1] ? signs[at + 1][0] - middle : Infinity;
    const words = room >= 6 * (word.length + 2) ? `${glyph} ${word}` : glyph;
    free = middle + 6 * words.length;
    return [tick, text(words, middle - 5, TOP - 12, { class: glyph === "▼" || glyph === "✕" ? "bad" : null })];
  });
}

function drawLane(lane, { end, width }, text) {
  const bottom = lane.y + LANE - 4;
  const largest = Math.max(...lane.calls.map((call) => call.tokens || 0), 1);
  const rects = lane.bars.map(({ call, x, width: wide }) => svg("rect", { x, y: bottom - (LANE - 8) * ((call.tokens || largest) / largest), width: wide, height: (LANE - 8) * ((call.tokens || largest) / largest), fill: COST }));
  const after = lane.bars.length ? lane.bars[lane.bars.length - 1].x + lane.bars[lane.bars.length - 1].width + 8 : LEFT;
  const isLeft = after < width / 2;
  const words = (lane.first_words || lane.name).slice(0, 44);
  return [line(bottom + 0.5, end), rects, text("↳ agent", LEFT - 8, bottom - 4, { "text-anchor": "end" }), text(words, isLeft ? after : (lane.bars[0] || { x: end }).x - 8, bottom - 4, { "text-anchor": isLeft ? "start" : "end" })];
}

export function makeLegend() {
  const swatch = ({ colour, glyph, words }) => h("li", {}, h("span", { class: "swatch", style: { background: colour } }, glyph), words);
  return h("ul", { class: "legend" }, Object.values(CACHE).map(swatch), h("li", {}, h("span", { class: "dashes", "aria-hidden": "true" }), "without lamina"));
}
