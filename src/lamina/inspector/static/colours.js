// One colour, pattern and letter for each layer, in every drawing. The colours can be told apart by people who
// do not see red and green alike; the letters and patterns can be told apart by everyone.

export const LAYERS = {
  unrecorded: { colour: "#8b95a1", letter: "?", pattern: "cross", words: "not recorded, estimated" },
  tools: { colour: "#6b7280", letter: "D", pattern: "plain", words: "tool definitions" },
  system: { colour: "#0072b2", letter: "S", pattern: "plain", words: "system text" },
  library: { colour: "#56b4e9", letter: "L", pattern: "dots", words: "library of attachments" },
  history: { colour: "#009e73", letter: "H", pattern: "plain", words: "history" },
  turn: { colour: "#d9c400", letter: "T", pattern: "up", words: "what came with the prompt" },
  prompt: { colour: "#e69f00", letter: "P", pattern: "plain", words: "the prompt" },
  steps: { colour: "#cc79a7", letter: "X", pattern: "down", words: "steps of this turn" },
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

export const SEEN = {
  full: { colour: "#009e73", glyph: "■", words: "in full" },
  part: { colour: "#e69f00", glyph: "▤", words: "in part" },
  recall: { colour: "#d55e00", glyph: "□", words: "behind a handle" },
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
