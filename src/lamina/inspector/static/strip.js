// The session strip: one bar for each request, from left to right, stacked by layer. Sub-agents have lanes below.
import { date, day, h, money, number, span, tokens } from "./dom.js";
import { CACHE, LAYERS, SEEN, fill, theme } from "./colours.js";

const TOP = 34;
const HEIGHT = 190;
const CACHE_TOP = TOP + HEIGHT + 8;
const CACHE_HEIGHT = 18;
const SEEN_HEIGHT = 8;
const LANE_HEIGHT = 26;
const LEFT = 52;
const RIGHT = 8;
const GAP = 12;
const SLICE = 12; // milliseconds of drawing in one frame
const STEP = 100; // bars between two looks at the clock
const IDLE = 3600; // seconds after which a pause is drawn

export function makeStrip(session, { selected, onSelect, onLane = null }) {
  const canvas = h("canvas", { class: "strip", role: "img", tabindex: "0", "aria-label": describe(session) });
  const mark = h("div", { class: "strip-mark", hidden: true });
  const tip = h("div", { class: "tip", hidden: true });
  const box = h("div", { class: "strip-box" }, canvas, mark, tip);
  const lanes = onLane ? session.lanes || [] : [];
  const state = { selected, seen: null, layout: null, drawing: 0 };

  function place() {
    const width = Math.max(box.clientWidth, 260);
    const scale = window.devicePixelRatio || 1;
    const layout = layOut(session, lanes, width, state.seen);
    state.layout = layout;
    canvas.width = width * scale;
    canvas.height = layout.height * scale;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${layout.height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    state.drawing += 1;
    drawInSteps(draw(pen, session, layout, state.seen), state.drawing);
    markSelected();
  }

  // A long strip is drawn over several frames. A newer drawing ends an older one.
  function drawInSteps(steps, drawing) {
    if (drawing !== state.drawing) return;
    const until = performance.now() + SLICE;
    while (performance.now() < until) if (steps.next().done) return;
    requestAnimationFrame(() => drawInSteps(steps, drawing));
  }

  // The selection is an element of its own: choosing another bar does not draw thousands of bars again.
  function markSelected() {
    const bar = state.layout && state.layout.bars.find((each) => each.call.number === state.selected);
    mark.hidden = !bar;
    if (!bar) return;
    const width = Math.max(bar.width + 4, 6);
    mark.style.left = `${bar.x + bar.width / 2 - width / 2}px`;
    mark.style.width = `${width}px`;
    mark.style.top = `${TOP - 2}px`;
    mark.style.height = `${CACHE_TOP + CACHE_HEIGHT - TOP + 4}px`;
  }

  function findBar(event) {
    const bounds = canvas.getBoundingClientRect();
    const x = event.clientX - bounds.left;
    const y = event.clientY - bounds.top;
    const lane = state.layout.lanes.find((each) => y >= each.y && y < each.y + LANE_HEIGHT);
    if (lane) return { lane, bar: nearest(lane.bars, x) };
    return { lane: null, bar: nearest(state.layout.bars, x) };
  }

  canvas.addEventListener("click", (event) => {
    const { lane, bar } = findBar(event);
    if (!bar) return;
    if (lane) onLane(lane.id, bar.call.number);
    else onSelect(bar.call.number);
  });
  canvas.addEventListener("mousemove", (event) => {
    const { lane, bar } = findBar(event);
    tip.hidden = !bar;
    if (!bar) return;
    tip.replaceChildren(...(lane ? laneTip(lane, bar) : barTip(bar.call, session)));
    const left = Math.min(Math.max(bar.x - 60, 0), box.clientWidth - 280);
    tip.style.left = `${Math.max(left, 0)}px`;
    tip.style.top = `${state.layout.height + 4}px`;
  });
  canvas.addEventListener("mouseleave", () => {
    tip.hidden = true;
  });
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move) return;
    event.preventDefault();
    const at = session.calls.findIndex((call) => call.number === state.selected) + move;
    if (at >= 0 && at < session.calls.length) onSelect(session.calls[at].number);
  });
  // It is drawn in the next frame: a change of size while sizes are observed is a complaint of the browser.
  new ResizeObserver(() => requestAnimationFrame(place)).observe(box);
  return {
    element: box,
    select(number) {
      state.selected = number;
      markSelected();
    },
    show(states) {
      if (state.seen === states) return;
      state.seen = states;
      if (box.isConnected) place();
    },
  };
}

function nearest(bars, x) {
  let best = null;
  for (const bar of bars) if (x >= bar.x - 1) best = bar;
  return best || bars[0] || null;
}

function describe(session) {
  const totals = session.totals;
  return `${totals.calls} requests, ${totals.cuts} cuts, ${totals.broken} lost prefixes, ${money(totals.dollars)}. Arrow keys go through them.`;
}

function barTip(call, session) {
  const lines = [
    h("strong", {}, `Request ${call.number + 1} of ${session.recorded_calls}`),
    h("span", {}, date(call.at)),
    h("span", {}, call.error ? `failed: ${call.error}` : `${number(call.tokens + session.unrecorded)} tokens, ${money(call.dollars)}`),
    h("span", {}, `${tokens(call.read)} read · ${tokens(call.written)} written · ${tokens(call.uncached)} paid in full`),
  ];
  if (session.unrecorded) lines.push(h("span", {}, `of them about ${tokens(session.unrecorded)} not recorded`));
  if (call.idle > IDLE) lines.push(h("span", {}, `‖ after a pause of ${span(call.idle)}`));
  if (call.cut) lines.push(h("span", { class: "bad" }, `✂ cut: ${call.cut}; ${number(call.cut_lowered)} segments`));
  if (call.refusal) lines.push(h("span", { class: "bad" }, call.refusal));
  if (!call.continues) lines.push(h("span", { class: "bad" }, `▼ prefix lost: ${call.miss || "what was sent before has changed"}`));
  if (session.compacted.includes(call.number)) lines.push(h("span", {}, "◇ the client compacted the conversation before it"));
  return lines;
}

function laneTip(lane, bar) {
  const size = bar.call.tokens === null ? "size not recorded" : `${number(bar.call.tokens)} tokens`;
  return [
    h("strong", {}, `Sub-agent, request ${bar.call.number + 1}`),
    h("span", {}, lane.first_words || lane.name),
    h("span", {}, `${date(bar.call.at)} · ${size}`),
  ];
}

function layOut(session, lanes, width, seen) {
  const calls = session.calls;
  const usable = width - LEFT - RIGHT;
  const pauses = calls.filter((call) => call.idle > IDLE).length;
  const gapWidth = pauses ? Math.min(GAP, (usable * 0.3) / pauses) : 0;
  const step = (usable - gapWidth * pauses) / Math.max(calls.length, 1);
  const barWidth = Math.max(Math.min(step - (step > 4 ? 1 : 0), 60), 0.5);
  const bars = [];
  let x = LEFT;
  for (const call of calls) {
    const hasGap = call.idle > IDLE;
    if (hasGap) x += gapWidth;
    bars.push({ call, x, width: barWidth, gap: hasGap ? gapWidth : 0 });
    x += Math.min(step, 61);
  }
  const largest = Math.max(session.totals.largest + session.unrecorded, session.limits.room || 0, 1) * 1.04;
  let y = CACHE_TOP + CACHE_HEIGHT + (seen ? SEEN_HEIGHT + 6 : 0);
  const dates = y + 16;
  y = dates + 8;
  const placed = [];
  for (const lane of lanes) {
    placed.push({ ...lane, y, bars: placeLane(lane.calls, bars) });
    y += LANE_HEIGHT;
  }
  return { bars, largest, dates, lanes: placed, height: y, end: x, width };
}

// Bars of a sub-agent stand under the request of its parent that was sent last before them.
function placeLane(calls, bars) {
  const timed = bars.filter((bar) => bar.call.at !== null);
  const starts = timed.map((bar) => bar.call.at);
  const byParent = new Map();
  for (const call of calls) {
    let at = call.at === null ? 0 : findLast(starts, call.at);
    if (at < 0) at = 0;
    if (!byParent.has(at)) byParent.set(at, []);
    byParent.get(at).push(call);
  }
  const placed = [];
  for (const [at, group] of byParent) {
    const parent = timed[at] || bars[0];
    const next = timed[at + 1];
    const width = next ? next.x - parent.x : parent.width;
    const step = Math.max(width / group.length, 1.5);
    group.forEach((call, index) => placed.push({ call, x: parent.x + index * step, width: Math.max(step - 1, 1) }));
  }
  return placed.sort((one, other) => one.x - other.x);
}

function findLast(sorted, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

// A generator: each `yield` is a place where the drawing may go on in the next frame.
function* draw(pen, session, layout, seen) {
  const colours = theme();
  const { bars, largest } = layout;
  const y = (amount) => TOP + HEIGHT - (HEIGHT * amount) / largest;
  pen.clearRect(0, 0, pen.canvas.width, pen.canvas.height);
  pen.font = "11px system-ui, sans-serif";
  drawGrid(pen, layout, y, colours);
  let count = 0;
  for (const bar of thin(bars)) {
    drawBar(pen, bar, session, y, colours);
    if ((count += 1) % STEP === 0) yield;
  }
  yield;
  if (seen) bars.forEach((bar, at) => drawSeen(pen, bar, seen[at]));
  yield;
  drawEvents(pen, bars, session, colours);
  drawLimits(pen, session.limits, layout, y, colours);
  yield;
  drawCostLine(pen, bars, colours.ink);
  drawDates(pen, layout, colours.faint);
  for (const lane of layout.lanes) {
    drawLane(pen, lane, layout, colours);
    yield;
  }
  pen.fillStyle = colours.faint;
  pen.textAlign = "right";
  pen.fillText("cache", LEFT - 8, CACHE_TOP + 13);
  if (seen) pen.fillText("seen", LEFT - 8, CACHE_TOP + CACHE_HEIGHT + SEEN_HEIGHT + 5);
}

// Of several bars that share one pixel, the largest is drawn.
function thin(bars) {
  if (bars.length < 2 || bars[1].x - bars[0].x >= 1) return bars;
  const largest = new Map();
  for (const bar of bars) {
    const pixel = Math.floor(bar.x);
    const other = largest.get(pixel);
    if (!other || bar.call.tokens > other.call.tokens) largest.set(pixel, { ...bar, x: pixel, width: 1 });
  }
  return [...largest.values()];
}

function drawGrid(pen, { largest, end }, y, { faint, line }) {
  pen.fillStyle = faint;
  pen.strokeStyle = line;
  pen.textAlign = "right";
  const step = niceStep(largest / 4);
  for (let amount = step; amount <= largest; amount += step) {
    pen.beginPath();
    pen.moveTo(LEFT, y(amount));
    pen.lineTo(end, y(amount));
    pen.stroke();
    pen.fillText(tokens(amount), LEFT - 8, y(amount) + 4);
  }
}

// 1, 2 or 5 times a power of ten: 7,300 is 10,000.
function niceStep(amount) {
  const size = 10 ** Math.floor(Math.log10(Math.max(amount, 1)));
  const share = amount / size;
  if (share <= 1) return size;
  if (share <= 2) return 2 * size;
  return share <= 5 ? 5 * size : 10 * size;
}

function drawBar(pen, { call, x, width }, session, y, { bad }) {
  if (call.error) {
    pen.fillStyle = bad;
    pen.fillRect(x, TOP + HEIGHT - 6, width, 6);
    return;
  }
  const named = Object.values(call.layers).reduce((sum, amount) => sum + amount, 0);
  const layers = [["unrecorded", session.unrecorded], ["tools", Math.max(call.tokens - named, 0)], ...Object.entries(call.layers)];
  let bottom = 0;
  for (const [layer, amount] of layers) {
    if (!amount) continue;
    pen.fillStyle = fill(pen, layer);
    pen.fillRect(x, y(bottom + amount), width, y(bottom) - y(bottom + amount));
    bottom += amount;
  }
  const all = Math.max(call.read + call.written + call.uncached, 1);
  let at = CACHE_TOP + CACHE_HEIGHT;
  for (const name of ["read", "written", "uncached"]) {
    const height = (CACHE_HEIGHT * call[name]) / all;
    pen.fillStyle = CACHE[name].colour;
    pen.fillRect(x, at - height, width, height);
    at -= height;
  }
}

function drawSeen(pen, { x, width }, state) {
  if (!state) return;
  pen.fillStyle = SEEN[state].colour;
  pen.fillRect(x, CACHE_TOP + CACHE_HEIGHT + 5, width, SEEN_HEIGHT);
}

// Cuts, lost prefixes, pauses and compactions of the client. Signs that would cover each other are left out.
function drawEvents(pen, bars, session, { bad, faint }) {
  const compacted = new Set(session.compacted);
  let free = 0;
  pen.textAlign = "center";
  for (const { call, x, width, gap } of bars) {
    if (gap) {
      pen.fillStyle = faint;
      pen.fillRect(x - gap / 2 - 0.5, TOP, 1, HEIGHT);
    }
    let sign = gap ? "‖" : "";
    if (compacted.has(call.number)) sign = "◇";
    if (!call.continues) sign = "▼";
    if (call.cut) sign = "✂";
    if (!sign) continue;
    const middle = sign === "‖" ? x - gap / 2 : x + width / 2;
    pen.fillStyle = sign === "✂" || sign === "▼" ? bad : faint;
    pen.fillRect(middle - 0.5, TOP - 4, 1, 5);
    if (middle < free) continue;
    pen.fillText(sign, middle, TOP - 8);
    free = middle + 12;
  }
}

function drawLimits(pen, limits, { bars, end }, y, { ink, faint }) {
  if (!bars.length) return;
  for (const [name, amount, dash] of [["room", limits.room, []], ["trigger", limits.trigger, [6, 3]], ["target", limits.target, [2, 3]]]) {
    if (!amount) continue;
    const isTrigger = name === "trigger";
    pen.strokeStyle = ink;
    pen.setLineDash(dash);
    pen.beginPath();
    pen.moveTo(LEFT, y(amount));
    pen.lineTo(end, y(amount));
    pen.stroke();
    pen.setLineDash([]);
    pen.fillStyle = faint;
    pen.textAlign = "left";
    pen.fillText(name, LEFT + 4, y(amount) + (isTrigger ? 12 : -3));
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

// The time of the first and of the last request, and the day after each pause, where there is room for it.
function drawDates(pen, { bars, dates, end }, faint) {
  const timed = bars.filter((bar) => bar.call.at !== null);
  pen.fillStyle = faint;
  pen.textAlign = "left";
  if (!timed.length) {
    pen.fillText("times are not recorded", LEFT, dates);
    return;
  }
  const first = date(timed[0].call.at);
  const last = date(timed[timed.length - 1].call.at);
  pen.fillText(first, timed[0].x, dates);
  let free = timed[0].x + pen.measureText(first).width + 14;
  const lastStart = Math.max(end, LEFT + 240) - pen.measureText(last).width;
  let previousDay = day(timed[0].call.at);
  for (const bar of timed) {
    const label = day(bar.call.at);
    const fits = bar.x >= free && bar.x + pen.measureText(label).width + 14 < lastStart;
    if (bar.gap && label !== previousDay && fits) {
      pen.fillText(label, bar.x, dates);
      free = bar.x + pen.measureText(label).width + 14;
    }
    previousDay = label;
  }
  if (timed.length > 1 && lastStart > free) pen.fillText(last, lastStart, dates);
}

function drawLane(pen, lane, { end, width: whole }, { faint, line, ink }) {
  pen.strokeStyle = line;
  pen.beginPath();
  pen.moveTo(LEFT, lane.y + LANE_HEIGHT - 3.5);
  pen.lineTo(end, lane.y + LANE_HEIGHT - 3.5);
  pen.stroke();
  const largest = Math.max(...lane.calls.map((call) => call.tokens || 0), 1);
  pen.fillStyle = LAYERS.library.colour;
  for (const bar of lane.bars) {
    const height = Math.max(((LANE_HEIGHT - 7) * (bar.call.tokens || largest)) / largest, 2);
    pen.fillRect(bar.x, lane.y + LANE_HEIGHT - 4 - height, bar.width, height);
  }
  pen.fillStyle = faint;
  pen.textAlign = "right";
  pen.fillText("↳ agent", LEFT - 8, lane.y + LANE_HEIGHT - 8);
  const words = (lane.first_words || lane.name).slice(0, 44);
  const width = pen.measureText(words).width;
  const lastBar = lane.bars[lane.bars.length - 1];
  const after = lastBar ? lastBar.x + lastBar.width + 8 : LEFT;
  const before = (lane.bars[0] ? lane.bars[0].x : LEFT) - 8 - width;
  pen.fillStyle = ink;
  pen.textAlign = "left";
  if (after + width < whole) pen.fillText(words, after, lane.y + LANE_HEIGHT - 8);
  else if (before > LEFT) pen.fillText(words, before, lane.y + LANE_HEIGHT - 8);
}

export function makeLegend(session) {
  const used = new Set(session.calls.flatMap((call) => Object.keys(call.layers)));
  if (session.unrecorded) used.add("unrecorded");
  if (session.tools.some((tool) => tool.tokens)) used.add("tools");
  const swatch = (look, sign) => h("li", {}, h("span", { class: "swatch", style: { background: look.colour } }, sign), look.words);
  const sign = (glyph, words, look = "glyph bad") => h("li", {}, h("span", { class: look }, glyph), words);
  const layers = Object.entries(LAYERS).filter(([name]) => used.has(name));
  return h(
    "ul",
    { class: "legend" },
    layers.map(([, look]) => swatch(look, look.letter)),
    Object.values(CACHE).map((look) => swatch(look, look.glyph)),
    session.totals.cuts ? sign("✂", "cut") : null,
    session.totals.broken ? sign("▼", "prefix lost") : null,
    session.calls.some((call) => call.idle > IDLE) ? sign("‖", "pause", "glyph") : null,
    session.compacted.length ? sign("◇", "compacted by the client", "glyph") : null,
    session.totals.dollars ? sign("╱", "cost so far", "glyph") : null,
  );
}
