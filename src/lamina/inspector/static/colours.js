// The colours of every drawing. The strip has four of them: what a cache did with a request, and what the request cost.
// The map has five more, which say what is in a request; layers that share a colour have different patterns and letters.
// No colour means two things. They can be told apart by people who do not see red and green alike, and the letters and
// patterns by everyone.

export const LAYERS = {
  unrecorded: { colour: "#8b95a1", letter: "?", pattern: "cross", words: "not recorded, estimated" },
  tools: { colour: "#0072b2", letter: "D", pattern: "up", words: "tool definitions" },
  system: { colour: "#0072b2", letter: "S", pattern: "plain", words: "system text" },
  library: { colour: "#3f8f9f", letter: "L", pattern: "dots", words: "library of attachments" },
  history: { colour: "#009e73", letter: "H", pattern: "plain", words: "history" },
  turn: { colour: "#3f8f9f", letter: "T", pattern: "up", words: "what came with the prompt" },
  prompt: { colour: "#b8578b", letter: "P", pattern: "plain", words: "the prompt" },
  steps: { colour: "#b8578b", letter: "X", pattern: "down", words: "steps of this turn" },
};

export const FORMS = {
  FULL: { glyph: "■", words: "in full" },
  COMPACT: { glyph: "▤", words: "shortened" },
  STUB: { glyph: "□", words: "by name and handle" },
  OMITTED: { glyph: "×", words: "not sent" },
};

// From cheap to dear: the lighter, the cheaper.
export const CACHE = {
  read: { colour: "#a9c1d9", glyph: "●", words: "read from the cache" },
  written: { colour: "#7b6fb0", glyph: "◐", words: "written to the cache" },
  uncached: { colour: "#d55e00", glyph: "○", words: "paid in full" },
};

export const COST = { colour: "#77818c", glyph: "$", words: "cost" };

export const SEEN = {
  full: { colour: "#00588c", glyph: "■", words: "in full" },
  part: { colour: "#00588c", glyph: "▤", words: "in part" },
  recall: { colour: "#77818c", glyph: "□", words: "behind a handle" },
};

// The colours of the theme, as the drawings need them.
export function theme() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  return { ink: read("--ink"), faint: read("--faint"), line: read("--line"), bad: read("--bad"), paper: read("--paper") };
}

const tiles = new Map();

// A pattern for a canvas: the colour of the layer, hatched where the form or the layer asks for it.
export function fill(context, layer, form = "FULL") {
  const look = LAYERS[layer] || LAYERS.tools;
  if (form === "FULL" && look.pattern === "plain") return look.colour;
  const key = `${layer}/${form}`;
  if (!tiles.has(key)) tiles.set(key, context.createPattern(drawTile(look, form), "repeat"));
  return tiles.get(key);
}

const STRENGTH = { FULL: 1, COMPACT: 0.35, STUB: 0.12 };

function drawTile(look, form) {
  const tile = document.createElement("canvas");
  tile.width = 8;
  tile.height = 8;
  const pen = tile.getContext("2d");
  pen.fillStyle = look.colour;
  pen.globalAlpha = STRENGTH[form];
  pen.fillRect(0, 0, 8, 8);
  pen.globalAlpha = 1;
  pen.strokeStyle = form === "FULL" ? "rgba(255,255,255,.55)" : look.colour;
  pen.lineWidth = 1.4;
  pen.beginPath();
  const pattern = form === "COMPACT" ? "down" : look.pattern;
  if (pattern === "up" || pattern === "cross") line(pen, 0, 8, 8, 0);
  if (pattern === "down" || pattern === "cross") line(pen, 0, 0, 8, 8);
  if (pattern === "dots") pen.rect(3, 3, 1.5, 1.5);
  pen.stroke();
  return tile;
}

function line(pen, x1, y1, x2, y2) {
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
}
