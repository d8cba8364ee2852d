// The address of a view: everything that is chosen stands behind the # of the page, so that it can be sent on.
import { withQuestionMark } from "./dom.js";

export const SETTINGS = ["policy", "window", "target", "trigger", "keep_last", "rules", "pinned", "left_out"];

export function readAddress() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const words = path.split("/").filter(Boolean);
  const choices = new URLSearchParams(query);
  const settings = {};
  for (const name of SETTINGS) settings[name] = choices.get(name) || "";
  return {
    session: words[0] === "s" ? words[1] : null,
    request: words[2] === "r" ? Number(words[3]) : null,
    segment: words[4] === "seg" ? decodeURIComponent(words.slice(5).join("/")) : null,
    view: choices.get("view") || "request",
    tab: choices.get("tab") || "Sent",
    before: choices.get("before"),
    text: choices.get("text") || "",
    search: choices.get("search") || "",
    sort: choices.get("sort") || "order",
    by: choices.get("by") || "",
    settings,
  };
}

export function writeAddress(address) {
  const words = ["#"];
  if (address.session) words.push("s", address.session);
  if (address.session && address.request !== null) words.push("r", String(address.request));
  if (address.segment) words.push("seg", encodeURIComponent(address.segment));
  const query = new URLSearchParams();
  if (address.view !== "request") query.set("view", address.view);
  if (address.tab !== "Sent") query.set("tab", address.tab);
  if (address.sort !== "order") query.set("sort", address.sort);
  for (const name of ["before", "text", "search", "by"]) if (address[name]) query.set(name, address[name]);
  for (const [name, value] of Object.entries(address.settings)) if (value) query.set(name, value);
  return words.join("/") + withQuestionMark(query);
}

export function go(changes) {
  const address = { ...readAddress(), ...changes };
  if (changes.request !== undefined && changes.before === undefined) address.before = null;
  location.hash = writeAddress(address);
}
