// A guided tour of a session: six stops, each at something that happened in it. A stop that a session does not have is
// left out. The number of the stop stands in the address, so that it can be sent on.
import { go } from "./address.js";
import { button, h, replace } from "./dom.js";
import { isLost } from "./strip.js";

// Where each stop is, what to look at there, and what to say. `find` gives the request, or null.
const STOPS = [
  {
    title: "Every request, from left to right",
    words: "A bar is one request that left. Its height is its size; pale blue was read from the cache, violet written to it, orange paid in full. Below it stands what it cost. Drag over bars to look at a span.",
    find: (session) => (session.calls.find((call) => call.follows !== null) || session.calls[0]).number,
    selector: ".strip-box",
  },
  {
    title: "A cut",
    words: "The window was nearly full, so lamina left out what is oldest and can be brought back, in one step. The column “left out” and this list have everything that the model did not see here, and why.",
    find: (session) => findNumber(session, (call) => call.cut),
    selector: "#unseen",
  },
  {
    title: "A recall",
    words: "The model noticed that it needed something that was cut, and asked for it by its handle. lamina answered by itself and sent the request again: the client saw only the final answer.",
    find: (session) => findNumber(session, (call) => call.recalled),
    selector: "#answer",
  },
  {
    title: "A lost cache",
    words: "This request was paid nearly in full again. Compare names the cause, the first byte that differs, and what that cost.",
    find: (session) => findNumber(session, isLost),
    view: "compare",
    selector: "#verdict",
  },
  {
    title: "A sub-agent",
    words: "Requests of a sub-agent stand below those of its parent, with a window of their own. Choose one to open it.",
    find: (session) => (session.lanes.length ? findParent(session) : null),
    view: "requests",
    selector: ".request-row.child",
  },
  {
    title: "An error",
    words: "The provider was overloaded, and the client asked again later. The answer is kept as it came, with its status and its times.",
    find: (session) => findNumber(session, (call) => call.refusal && !call.is_open),
    own: { show: "answer" },
    selector: ".answer",
  },
];

function findNumber(session, test) {
  const call = session.calls.find(test);
  return call ? call.number : null;
}

function findParent(session) {
  const first = session.lanes[0].calls[0];
  const before = session.calls.filter((call) => first && first.at !== null && call.at !== null && call.at <= first.at);
  return before.length ? before[before.length - 1].number : session.calls[0].number;
}

function listStops(session) {
  return STOPS.map((stop) => ({ ...stop, request: stop.find(session) })).filter((stop) => stop.request !== null);
}

export function goToStop(session, number) {
  const stop = listStops(session)[number - 1];
  go({ request: stop.request, segment: null, view: stop.view || "request", from: null, to: null, find: "", own: { ...stop.own, tour: String(number) } });
}

export function hasTour(session) {
  return listStops(session).length > 2;
}

// Draws the card of the stop in the address, and frames what it speaks of. Without a stop, both go away.
export function showTour(session, address) {
  const card = document.getElementById("tour");
  for (const each of document.querySelectorAll(".toured")) each.classList.remove("toured");
  const stops = session ? listStops(session) : [];
  const number = Number(address.own.tour || 0);
  const stop = stops[number - 1];
  card.hidden = !stop;
  if (!stop) return;
  const end = () => go({ own: {} });
  const next = number < stops.length ? button("Next", () => goToStop(session, number + 1), { id: "tour-next" }) : button("Done", end, { id: "tour-next" });
  replace(
    card,
    h("h2", {}, stop.title, h("span", { class: "faint" }, ` ${number} of ${stops.length}`)),
    h("p", {}, stop.words),
    h("div", { class: "buttons" }, next, number > 1 ? button("Back", () => goToStop(session, number - 1)) : null, number < stops.length ? button("End the tour", end, { class: "quiet" }) : null),
  );
  const target = document.querySelector(stop.selector);
  if (target) {
    target.classList.add("toured");
    target.scrollIntoView({ block: "nearest" });
  }
}
