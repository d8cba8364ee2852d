// The session strip: one bar for each request, from left to right. Its height is the size of the request, and its
// colours are what the cache did with it. Below it, on an axis of its own, is what each request cost. Sub-agents have
// lanes below. A drag, or the keys + and −, choose a span of requests.
import { atLeast, date, day, h, money, number, plural, span, tokens } from "./dom.js";
import { CACHE, COST, SEEN, theme } from "./colours.js";

const TOP = 20;
const HEIGHT = 84;
const COST_TOP = TOP + HEIGHT + 8;
const COST_HEIGHT = 26;
const SEEN_HEIGHT = 8;
const LANE_HEIGHT = 24;
const LEFT = 60;
const RIGHT = 8;
const GAP = 12;
const SLICE = 12; // milliseconds of drawing in one frame
const STEP = 100; // bars between two looks at the clock
const IDLE = 3600; // seconds after which a pause is drawn
const FEWEST = 4; // requests of the smallest span

export function makeStrip(session, { selected, onSelect, onLane = null, chosen = null, onSpan = null }) {
  const canvas = h("canvas", { class: "strip", role: "img", tabindex: "0", "aria-label": describe(session) });
  const mark = h("div", { class: "strip-mark", hidden: true });
  const brush = h("div", { class: "strip-brush", hidden: true });
  const tip = h("div", { class: "tip", hidden: true });
  const box = h("div", { class: "strip-box" }, canvas, mark, brush, tip);
  const lanes = onLane ? session.lanes || [] : [];
  const calls = chosen ? session.calls.filter((call) => call.number >= chosen.from && call.number <= chosen.to) : session.calls;
  const shown = { ...session, calls };
  const state = { selected, seen: null, layout: null, drawing: 0, dragStart: null };

  function place() {
    const width = Math.max(box.clientWidth, 260);
    const scale = window.devicePixelRatio || 1;
    const layout = layOut(shown, lanes, width, state.seen);
    state.layout = layout;
    canvas.width = width * scale;
    canvas.height = layout.height * scale;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${layout.height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    state.drawing += 1;
    drawInSteps(draw(pen, shown, layout, seenOf(layout)), state.drawing);
    markSelected();
  }

  // What is seen is told for every request of the session; a span shows some of them.
  function seenOf(layout) {
    if (!state.seen) return null;
    const places = new Map(session.calls.map((call, at) => [call.number, at]));
    return layout.bars.map((bar) => state.seen[places.get(bar.call.number)]);
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
    mark.style.height = `${COST_TOP + COST_HEIGHT - TOP + 4}px`;
  }

  function pointAt(event) {
    const bounds = canvas.getBoundingClientRect();
    return { x: event.clientX - bounds.left, y: event.clientY - bounds.top };
  }

  function findBar(event) {
    const { x, y } = pointAt(event);
    const lane = state.layout.lanes.find((each) => y >= each.y && y < each.y + LANE_HEIGHT);
    if (lane) return { lane, bar: nearest(lane.bars, x) };
    return { lane: null, bar: nearest(state.layout.bars, x) };
  }

  // Half as many requests around the selected one, or twice as many, or all.
  function zoom(factor) {
    const count = factor ? Math.max(Math.round(calls.length * factor), FEWEST) : session.calls.length;
    if (count >= session.calls.length) {
      onSpan(null);
      return;
    }
    const at = Math.max(session.calls.findIndex((call) => call.number === state.selected), 0);
    const start = Math.min(Math.max(at - Math.floor(count / 2), 0), session.calls.length - count);
    onSpan({ from: session.calls[start].number, to: session.calls[start + count - 1].number });
  }

  function endDrag(event) {
    const start = state.dragStart;
    state.dragStart = null;
    brush.hidden = true;
    const { x } = pointAt(event);
    if (start === null || Math.abs(x - start) < 8) return false;
    const one = nearest(state.layout.bars, Math.min(start, x));
    const other = nearest(state.layout.bars, Math.max(start, x));
    if (!one || other.call.number === one.call.number) return false;
    onSpan({ from: one.call.number, to: other.call.number });
    return true;
  }

  canvas.addEventListener("pointerdown", (event) => {
    if (onSpan && event.button === 0 && event.pointerType !== "touch") state.dragStart = pointAt(event).x;
  });
  canvas.addEventListener("click", (event) => {
    if (endDrag(event)) return;
    const { lane, bar } = findBar(event);
    if (!bar) return;
    if (lane) onLane(lane.id, bar.call.number);
    else onSelect(bar.call.number);
  });
  canvas.addEventListener("mousemove", (event) => {
    const { x } = pointAt(event);
    if (state.dragStart !== null && event.buttons) {
      brush.hidden = Math.abs(x - state.dragStart) < 8;
      brush.style.left = `${Math.min(x, state.dragStart)}px`;
      brush.style.width = `${Math.abs(x - state.dragStart)}px`;
      tip.hidden = true;
      return;
    }
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
    brush.hidden = true;
    state.dragStart = null;
  });
  canvas.addEventListener("keydown", (event) => {
    if (onSpan && event.key in ZOOM_KEYS) {
      event.preventDefault();
      zoom(ZOOM_KEYS[event.key]);
      return;
    }
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move) return;
    event.preventDefault();
    const at = calls.findIndex((call) => call.number === state.selected) + move;
    if (at >= 0 && at < calls.length) onSelect(calls[at].number);
  });
  // It is drawn in the next frame: a change of size while sizes are observed is a complaint of the browser.
  new ResizeObserver(() => requestAnimationFrame(place)).observe(box);
  return {
    element: box,
    zoom,
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

const ZOOM_KEYS = { "+": 0.5, "=": 0.5, "-": 2, 0: 0 };

// A request that lost its cache, other than by a cut that lamina made.
export function isLost(call) {
  if (call.cut) return false;
  return Boolean(call.loss && call.loss.by !== "lamina");
}

function nearest(bars, x) {
  let best = null;
  for (const bar of bars) if (x >= bar.x - 1) best = bar;
  return best || bars[0] || null;
}

function describe(session) {
  const totals = session.totals;
  const lost = session.calls.filter(isLost).length;
  return `${plural(totals.calls, "request")}, ${plural(totals.cuts, "cut")}, ${plural(lost, "lost cache")}, ${atLeast(totals.dollars, totals.is_at_least)}. Arrow keys go through them, + and − choose a span.`;
}

function barTip(call, session) {
  const lines = [
    h("strong", {}, `Request ${call.number + 1} of ${session.calls.length}`),
    h("span", {}, date(call.at)),
    h("span", {}, `${number(call.tokens + session.unrecorded)} tokens, ${money(call.dollars)}`),
    h("span", {}, `${tokens(call.read)} read · ${tokens(call.written)} written · ${tokens(call.uncached)} paid in full`),
  ];
  if (session.unrecorded) lines.push(h("span", {}, `of them about ${tokens(session.unrecorded)} not recorded`));
  if (call.idle > IDLE) lines.push(h("span", {}, `‖ after a pause of ${span(call.idle)}`));
  if (call.cut) lines.push(h("span", {}, `✂ cut: ${call.cut}; ${number(call.cut_lowered)} pieces${describeCutCost(call.loss)}`));
  if (isLost(call)) lines.push(h("span", { class: "bad" }, `▼ ${describeLoss(call)}`));
  if (call.follows !== null) lines.push(h("span", {}, `↺ sent by lamina after request ${call.follows + 1}: ${call.why || "a recall"}`));
  if (call.refusal) lines.push(h("span", { class: "bad" }, call.refusal));
  if (session.compacted.includes(call.number)) lines.push(h("span", {}, "◇ the client compacted the conversation before it"));
  return lines;
}

const priceLoss = (loss) => `${tokens(loss.tokens)} tokens${loss.dollars === null ? "" : `, ${money(loss.dollars)}`}`;

// "; it cost 5K tokens written anew, $0.02, and spared reads for $0.10": what a cut cost, and what it saved until the next one.
function describeCutCost(loss) {
  if (!loss) return "";
  const saved = loss.saved === null ? "" : `, and spared reads for ${money(loss.saved)}`;
  return `; it cost ${priceLoss(loss)}${saved}`;
}

// "the cache was lost: idle for 7 minutes; 22.8K tokens, $0.08"
export function describeLoss(call) {
  return `the cache was lost: ${call.loss.why}; ${priceLoss(call.loss)}`;
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
  let largest = 1;
  let dearest = 0;
  for (const call of calls) {
    largest = Math.max(largest, call.tokens + session.unrecorded);
    dearest = Math.max(dearest, call.dollars || 0);
  }
  largest *= 1.04;
  let y = COST_TOP + COST_HEIGHT + (seen ? SEEN_HEIGHT + 6 : 0);
  const dates = y + 14;
  y = dates + 6;
  const placed = [];
  for (const lane of lanes) {
    placed.push({ ...lane, y, bars: placeLane(lane.calls, bars) });
    y += LANE_HEIGHT;
  }
  return { bars, largest, dearest, dates, lanes: placed, height: y, end: x, width };
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
    if (!parent) continue;
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
  drawAxes(pen, layout, y, colours);
  let count = 0;
  for (const bar of thin(bars)) {
    drawBar(pen, bar, session, layout, y, colours);
    if ((count += 1) % STEP === 0) yield;
  }
  yield;
  if (seen) bars.forEach((bar, at) => drawSeen(pen, bar, seen[at]));
  yield;
  drawEvents(pen, bars, session, colours);
  drawDates(pen, layout, colours.faint);
  for (const lane of layout.lanes) {
    drawLane(pen, lane, layout, colours);
    yield;
  }
  pen.fillStyle = colours.faint;
  pen.textAlign = "right";
  if (seen) pen.fillText("seen", LEFT - 8, COST_TOP + COST_HEIGHT + SEEN_HEIGHT + 5);
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

function drawAxes(pen, { largest, dearest, end }, y, { faint, line }) {
  pen.fillStyle = faint;
  pen.strokeStyle = line;
  pen.textAlign = "right";
  const step = niceStep(largest / 2);
  for (let amount = step; amount <= largest; amount += step) {
    pen.beginPath();
    pen.moveTo(LEFT, y(amount));
    pen.lineTo(end, y(amount));
    pen.stroke();
    pen.fillText(tokens(amount), LEFT - 8, y(amount) + 4);
  }
  pen.fillText("tokens", LEFT - 8, TOP + HEIGHT);
  pen.beginPath();
  pen.moveTo(LEFT, COST_TOP + COST_HEIGHT + 0.5);
  pen.lineTo(end, COST_TOP + COST_HEIGHT + 0.5);
  pen.stroke();
  pen.fillText(dearest ? money(dearest) : "no price", LEFT - 8, COST_TOP + 8);
  pen.fillText("cost", LEFT - 8, COST_TOP + COST_HEIGHT);
}

// 1, 2 or 5 times a power of ten: 7,300 is 10,000.
function niceStep(amount) {
  const size = 10 ** Math.floor(Math.log10(Math.max(amount, 1)));
  const share = amount / size;
  if (share <= 1) return size;
  if (share <= 2) return 2 * size;
  return share <= 5 ? 5 * size : 10 * size;
}

function drawBar(pen, { call, x, width }, session, { dearest }, y, { faint }) {
  const size = call.tokens + session.unrecorded;
  const all = call.read + call.written + call.uncached;
  let bottom = 0;
  for (const name of ["read", "written", "uncached"]) {
    const amount = all ? (size * call[name]) / all : 0;
    if (!amount) continue;
    pen.fillStyle = CACHE[name].colour;
    pen.fillRect(x, y(bottom + amount), width, y(bottom) - y(bottom + amount));
    bottom += amount;
  }
  if (!all) {
    pen.strokeStyle = faint; // nothing was reported of it: only its size is known
    if (width > 3) pen.strokeRect(x + 0.5, y(size) + 0.5, width - 1, Math.max(y(0) - y(size) - 1, 1));
    else pen.fillRect(x, y(size), width, 1);
  }
  if (!call.dollars || !dearest) return;
  const height = Math.max((COST_HEIGHT * call.dollars) / dearest, 1);
  pen.fillStyle = COST.colour;
  pen.fillRect(x, COST_TOP + COST_HEIGHT - height, width, height);
}

function drawSeen(pen, { x, width }, state) {
  const look = SEEN[state];
  if (!look) return;
  const top = COST_TOP + COST_HEIGHT + 5;
  pen.fillStyle = look.colour;
  pen.strokeStyle = look.colour;
  if (state === "recall" && width > 3) pen.strokeRect(x + 0.5, top + 0.5, width - 1, SEEN_HEIGHT - 1);
  else pen.fillRect(x, top + (state === "full" ? 0 : SEEN_HEIGHT / 2), width, state === "full" ? SEEN_HEIGHT : SEEN_HEIGHT / 2);
}

// The sign of a request and what it says: cuts, lost caches, errors, recalls, pauses, compactions of the client.
function signOf(call, hasPause, compacted) {
  if (call.refusal && !call.is_open) return ["✕", call.status ? String(call.status) : "error", "bad"];
  if (call.cut) return ["✂", "cut", "ink"];
  if (isLost(call)) return ["▼", `lost ${tokens(call.loss.tokens)}`, "bad"];
  if (call.follows !== null && call.follows !== undefined) return ["↺", call.why ? "again" : "recall", "ink"];
  if (compacted.has(call.number)) return ["◇", "compacted", "faint"];
  if (hasPause) return ["‖", span(call.idle), "faint"];
  return null;
}

// A sign has its words beside it where there is room. Signs that would cover each other are left out.
function drawEvents(pen, bars, session, colours) {
  const compacted = new Set(session.compacted);
  const signs = [];
  for (const { call, x, width, gap } of bars) {
    if (gap) {
      pen.fillStyle = colours.faint;
      pen.fillRect(x - gap / 2 - 0.5, TOP, 1, HEIGHT);
    }
    const sign = signOf(call, gap > 0, compacted);
    if (sign) signs.push([x + width / 2, ...sign]);
  }
  let free = 0;
  pen.textAlign = "left";
  signs.forEach(([middle, glyph, words, colour], at) => {
    pen.fillStyle = colours[colour];
    pen.fillRect(middle - 0.5, TOP - 4, 1, 5);
    if (middle - 5 < free) return;
    const whole = `${glyph} ${words}`;
    const next = signs[at + 1] ? signs[at + 1][0] - 6 : bars[bars.length - 1].x + 60;
    const text = middle - 5 + pen.measureText(whole).width < next ? whole : glyph;
    pen.fillText(text, middle - 5, TOP - 8);
    free = middle - 5 + pen.measureText(text).width + 3;
  });
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
  // Only after a pause: to write the day of each of thousands of bars takes seconds.
  timed.forEach((bar, at) => {
    if (!bar.gap || !at) return;
    const label = day(bar.call.at);
    const fits = bar.x >= free && bar.x + pen.measureText(label).width + 14 < lastStart;
    if (!fits || label === day(timed[at - 1].call.at)) return;
    pen.fillText(label, bar.x, dates);
    free = bar.x + pen.measureText(label).width + 14;
  });
  if (timed.length > 1 && lastStart > free) pen.fillText(last, lastStart, dates);
}

function drawLane(pen, lane, { end, width: whole }, { faint, line, ink }) {
  pen.strokeStyle = line;
  pen.beginPath();
  pen.moveTo(LEFT, lane.y + LANE_HEIGHT - 3.5);
  pen.lineTo(end, lane.y + LANE_HEIGHT - 3.5);
  pen.stroke();
  const largest = lane.calls.reduce((most, call) => Math.max(most, call.tokens || 0), 1);
  pen.fillStyle = COST.colour;
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

export function makeLegend() {
  const swatch = (look) => h("li", {}, h("span", { class: "swatch", style: { background: look.colour } }, look.glyph), look.words);
  return h("ul", { class: "legend" }, Object.values(CACHE).map(swatch), swatch(COST));
}
