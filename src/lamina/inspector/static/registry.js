// What the page can show and do. Views, pages and actions are added by `views.js`; the frame draws whatever is here.

// A tab of a session: `draw({ body, session, strip, address })`.
const views = [];

// A page of its own, at the address #/p/NAME, with a link in the top line: `draw({ main, address })`.
const pages = [];

// An entry of a menu. `place` is "session", "request" or "sessions"; the entry is a link if it has `href`, and a
// button that calls `run` otherwise. Both get what is shown: { session, request, address }.
const actions = [];

export function addView(view) {
  views.push(view);
}

export function addPage(page) {
  pages.push(page);
}

export function addAction(action) {
  actions.push(action);
}

export function listViews() {
  return views;
}

export function findView(name) {
  return views.find((view) => view.name === name) || views[0];
}

export function listPages() {
  return pages;
}

export function findPage(name) {
  return pages.find((page) => page.name === name) || null;
}

// The actions of a place that make sense for what is shown now.
export function listActions(place, shown) {
  return actions.filter((action) => action.place === place && (!action.isThere || action.isThere(shown)));
}
