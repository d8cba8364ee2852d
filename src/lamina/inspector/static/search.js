// Search to the place: every place where a text stands, with the words around it, and filters that narrow them.
import { get } from "./api.js";
import { go, readAddress } from "./address.js";
import { button, date, h, plural } from "./dom.js";

const ROLES = [["", "anyone"], ["user", "the user"], ["assistant", "the model"], ["tool", "a tool"], ["system", "system text"]];
const SIGHTS = [["", "in sight or not"], ["in", "in sight at the end"], ["out", "left out at the end"]];

// The form of a search. What is chosen stands in the address, so that a search can be sent on.
export function makeSearchForm(address, { placeholder, label, id = "search" }) {
  const own = address.own;
  const input = h("input", { type: "search", id, value: address.search, placeholder, "aria-label": label });
  const field = (name, title, attributes) => h("label", {}, title, h("input", { ...attributes, name, value: own[name] || "" }));
  const choice = (name, title, options) => h("label", {}, title, h("select", { name }, options.map(([value, words]) => h("option", { value, selected: value === (own[name] || "") }, words))));
  const filters = h(
    "details",
    { class: "filters", open: FILTERS.some((name) => own[name]) },
    h("summary", {}, "Filters"),
    h(
      "div",
      { class: "controls" },
      choice("role", "said by", ROLES),
      choice("sight", "was", SIGHTS),
      field("tool", "tool", { type: "text", placeholder: "any" }),
      field("path", "path", { type: "text", placeholder: "any" }),
      field("client", "client", { type: "text", placeholder: "any" }),
      field("since", "since", { type: "date" }),
      field("until", "until", { type: "date" }),
      h("label", {}, h("input", { type: "checkbox", name: "whole", checked: Boolean(own.whole) }), "whole words"),
    ),
    h("p", { class: "faint small" }, "Words may stand in any order; “\"exact words\"” in quotes stand as they are, and -word must not be there."),
  );
  const onsubmit = (event) => {
    event.preventDefault();
    const chosen = {};
    for (const each of filters.querySelectorAll("[name]")) {
      const value = each.type === "checkbox" ? (each.checked ? "1" : "") : each.value.trim();
      if (value) chosen[each.name] = value;
    }
    go({ search: input.value.trim(), own: { ...readAddress().own, ...Object.fromEntries(FILTERS.map((name) => [name, ""])), ...chosen } });
  };
  const form = h("form", { class: "search", role: "search", onsubmit }, input, h("button", { type: "submit" }, "Search"), filters);
  return { form, input };
}

const MOST_MARKS = 500;
const FILTERS = ["role", "sight", "tool", "path", "client", "since", "until", "whole"];

export async function findPlaces(address, session = "") {
  const words = { text: address.search, session };
  for (const name of FILTERS) words[name] = address.own[name] || "";
  return get("search", {}, words);
}

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
  const open = () => go({ page: null, session: place.session, request: place.request, segment: place.ref, view: "request", find: place.words, own: place.ref === null ? { show: "answer" } : {}, from: null, to: null });
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
