// A menu: one button that opens a list of actions. It closes after a choice, with Escape, and with a click elsewhere.
import { button, h } from "./dom.js";

export function makeMenu(title, entries, { id = null } = {}) {
  const list = h("div", { class: "menu-list" }, entries);
  const menu = h("details", { class: "menu", id }, h("summary", { class: "button" }, title), list);
  const close = () => {
    menu.open = false;
  };
  const closeOutside = (event) => {
    if (!menu.isConnected) document.removeEventListener("click", closeOutside);
    else if (!menu.contains(event.target)) close();
  };
  document.addEventListener("click", closeOutside);
  list.addEventListener("click", (event) => {
    if (event.target.closest("button, a")) close();
  });
  menu.addEventListener("keydown", (event) => {
    const choices = [...list.querySelectorAll("button, a, input, select")].filter((each) => !each.disabled);
    if (event.key === "Escape" && menu.open) {
      event.stopPropagation();
      close();
      menu.querySelector("summary").focus();
    }
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!move || event.target.matches("input, select") || !choices.length) return;
    event.preventDefault();
    menu.open = true;
    const at = choices.indexOf(document.activeElement) + move;
    choices[(at + choices.length) % choices.length].focus();
  });
  return menu;
}

// An action of the registry, as an entry of a menu.
export function makeEntry(action, shown) {
  const attributes = { class: "menu-entry", title: action.hint || null, "data-action": action.name || null };
  if (action.href) return h("a", { ...attributes, href: action.href(shown), download: action.isDownload ? "" : null }, action.title);
  return button(action.title, () => action.run(shown), attributes);
}
