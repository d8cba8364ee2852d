// What a page that was saved as one file can answer by itself: it holds a session as it was recorded.

const MISSING = "This file does not hold that. Open the session with `lamina inspect` to see it.";

export function findSavedText(saved, session, ref) {
  const segment = (saved[`/texts/${session}`] || {})[ref];
  if (segment === undefined) throw new Error(MISSING);
  return segment;
}

// Requests share their entries: each holds [number of the entry, layer, form, tokens, cache].
export function openSavedRequest(saved, path) {
  const request = saved[`/api/${path}`];
  if (request === undefined) throw new Error(MISSING);
  const rows = saved[`/rows/${path.split("/")[1]}`];
  const entries = request.entries.map(([at, layer, form, tokens, cache]) => ({ ...rows[at], layer, form, tokens, cache }));
  return { ...request, entries };
}

const STATES = ["", "recall", "part", "full"]; // from nothing to all of a text
const OF_FORMS = { FULL: "full", COMPACT: "part", STUB: "recall", OMITTED: "recall" };

// Where a text is visible: the texts of the segments are in the file once, and their forms with each request.
export function findVisibleInSaved(saved, session, text) {
  const calls = saved[`/api/session/${session}`].calls;
  const words = text.toLowerCase();
  const matches = Object.values(saved[`/texts/${session}`] || {})
    .filter((segment) => segment.original.toLowerCase().includes(words))
    .map(({ ref, what, arrived }) => ({ ref, what, arrived }))
    .sort((one, other) => one.arrived - other.arrived);
  const refs = new Set(matches.map(({ ref }) => ref));
  const requests = calls.map((call) => saved[`/api/request/${session}/${call.number}`]);
  const states = requests.map((request) => findState(request, saved[`/rows/${session}`], refs));
  const turns = new Map();
  requests.forEach((request, at) => turns.set((request || { call: calls[at] }).call.turn, states[at]));
  return {
    text,
    states,
    matches: matches.slice(0, 200),
    visible: states.filter((state) => state === "full" || state === "part").length,
    hidden: states.filter((state) => state === "recall").length,
    turns: [...turns].map(([turn, state]) => ({ turn, state })),
  };
}

function findState(request, rows, refs) {
  let most = 0;
  for (const [at, , form] of request ? request.entries : []) {
    if (!refs.has(rows[at].ref)) continue;
    most = Math.max(most, STATES.indexOf(rows[at].own ? "part" : OF_FORMS[form]));
  }
  return STATES[most];
}
