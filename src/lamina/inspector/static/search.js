// Search to the place: every place where a text stands, with the words around it.
import { go } from "./address.js";
import { date, h, plural } from "./dom.js";

// The form of a search. The words stand in the address, so that a search can be sent on.
export function makeSearchForm(address) {
  const input = h("input", { type: "search", id: "search", value: address.search, placeholder: "Search in everything that was said", "aria-label": "Search in all sessions" });
  const onsubmit = (event) => {
    event.preventDefault();
    go({ search: input.value.trim() });
  };
  const hint = 'Words may stand in any order; "exact words" in quotes stand as they are, and -word must not be there.';
  return h("form", { class: "search", role: "search", title: hint, onsubmit }, input, h("button", { type: "submit" }, "Search"));
}

const MOST_MARKS = 500;

export function showPlaces(answer) {
  if (!answer.places.length) return h("p", { class: "empty", id: "places" }, `Nothing contains ${answer.text}.`);
  const more = answer.more ? " There are more: the search stopped here." : "";
  return h(
    "section",
    { class: "places" },
    h("p", { class: "faint" }, `${plural(answer.places.length, "place")} in ${plural(answer.sessions, "session")}.${more}`),
    h("ol", { class: "place-list", id: "places" }, answer.places.map(showPlace)),
  );
}

function showPlace(place) {
  const open = () => go({ session: place.session, request: place.request, segment: place.ref, view: "request", find: place.words, show: place.ref === null ? "answer" : "entries" });
  const facts = [place.what || place.kind, place.ref === null ? `answer to request ${place.request + 1}` : `since request ${place.request + 1}`, place.in_sight ? "" : "left out at the end", place.client, place.at === null ? "" : date(place.at)];
  return h(
    "li",
    {},
    h("button", { type: "button", class: "link place", onclick: open }, place.before, place.before ? " " : "", h("mark", {}, place.words), place.after ? " " : "", place.after),
    h("div", { class: "faint small" }, h("span", {}, place.title.slice(0, 80)), ` · ${facts.filter(Boolean).join(" · ")}`),
  );
}

// Marks a text wherever it stands in an element, and scrolls the first place into sight. What is there stays as it is.
export function markWords(element, words) {
  if (!words) return;
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const texts = [];
  while (walker.nextNode()) texts.push(walker.currentNode);
  const marks = [];
  for (let node of texts) {
    let at = node.data.indexOf(words);
    while (at >= 0 && marks.length < MOST_MARKS) {
      const found = node.splitText(at);
      node = found.splitText(words.length);
      marks.push(h("mark", {}, words));
      found.replaceWith(marks[marks.length - 1]);
      at = node.data.indexOf(words);
    }
  }
  if (!marks.length) return;
  const box = marks[0].closest(".pane-body") || element;
  box.scrollTop += marks[0].getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 3;
}
