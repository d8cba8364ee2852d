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

// A saved session is shown as it was recorded, so a text is visible from the request on in which it arrives.
export function findVisibleInSaved(saved, session, text) {
  const calls = saved[`/api/session/${session}`].calls;
  const words = text.toLowerCase();
  const segments = Object.values(saved[`/texts/${session}`] || {});
  const matches = segments
    .filter((segment) => segment.original.toLowerCase().includes(words))
    .map(({ ref, what, arrived }) => ({ ref, what, arrived }))
    .sort((one, other) => one.arrived - other.arrived);
  const first = matches.length ? matches[0].arrived : calls.length;
  const states = calls.map((call) => (call.number >= first ? "full" : ""));
  const turns = new Map();
  calls.forEach((call, at) => turns.set(call.turn, states[at]));
  return {
    text,
    states,
    matches: matches.slice(0, 200),
    visible: states.filter(Boolean).length,
    hidden: 0,
    turns: [...turns].map(([turn, state]) => ({ turn, state })),
  };
}
