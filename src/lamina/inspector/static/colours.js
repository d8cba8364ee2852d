// The colours of every drawing. The picture has three: what a cache did with a request, from cheap to dear. The map has
// four more, which say what is in a request. No colour means two things. They can be told apart by people who do not see
// red and green alike, and the letters by everyone.

export const LAYERS = {
  unrecorded: { colour: "#8b95a1", letter: "?", words: "not recorded, estimated" },
  tools: { colour: "#0072b2", letter: "D", words: "tool definitions" },
  system: { colour: "#0072b2", letter: "S", words: "system text" },
  library: { colour: "#3f8f9f", letter: "L", words: "library of attachments" },
  history: { colour: "#009e73", letter: "H", words: "history" },
  turn: { colour: "#3f8f9f", letter: "T", words: "what came with the prompt" },
  prompt: { colour: "#b8578b", letter: "P", words: "the prompt" },
  steps: { colour: "#b8578b", letter: "X", words: "steps of this turn" },
};

export const FORMS = {
  FULL: { glyph: "■", words: "in full", strength: 1 },
  COMPACT: { glyph: "▤", words: "shortened", strength: 0.5 },
  STUB: { glyph: "□", words: "by name and handle", strength: 0.15 },
  OMITTED: { glyph: "×", words: "not sent", strength: 0 },
};

export const CACHE = {
  read: { colour: "#a9c1d9", glyph: "●", words: "read from the cache" },
  written: { colour: "#7b6fb0", glyph: "◐", words: "written to the cache" },
  uncached: { colour: "#d55e00", glyph: "○", words: "paid in full" },
};

export const COST = "#77818c";
