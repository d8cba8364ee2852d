// The address of a view: everything that is chosen stands behind the # of the page, so that it can be sent on.
import { withQuestionMark } from "./dom.js";

export const SETTINGS = ["rules"];

const CHOICES = ["before", "text", "search", "by", "from", "to", "find"];
const KNOWN = new Set([...SETTINGS, ...CHOICES, "view", "tab", "sort"]);

// `own` are the choices of one page or view, which nothing else reads.
export function readAddress() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const words = path.split("/").filter(Boolean);
  const choices = new URLSearchParams(query);
  const settings = {};
  for (const name of SETTINGS) settings[name] = choices.get(name) || "";
  const own = {};
  for (const [name, value] of choices) if (!KNOWN.has(name)) own[name] = value;
  return {
    page: words[0] === "p" ? decodeURIComponent(words[1] || "") : null,
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
    from: choices.get("from"),
    to: choices.get("to"),
    find: choices.get("find") || "",
    settings,
    own,
  };
}

export function writeAddress(address) {
  const words = ["#"];
  if (address.page && !address.session) words.push("p", encodeURIComponent(address.page));
  if (address.session) words.push("s", address.session);
  if (address.session && address.request !== null) words.push("r", String(address.request));
  if (address.segment) words.push("seg", encodeURIComponent(address.segment));
  const query = new URLSearchParams();
  if (address.view !== "request") query.set("view", address.view);
  if (address.tab !== "Sent") query.set("tab", address.tab);
  if (address.sort !== "order") query.set("sort", address.sort);
  for (const name of CHOICES) if (address[name]) query.set(name, address[name]);
  for (const values of [address.settings, address.own]) {
    for (const [name, value] of Object.entries(values)) if (value) query.set(name, value);
  }
  return words.join("/") + withQuestionMark(query);
}

// Another view or page has choices of its own.
export function go(changes) {
  const before = readAddress();
  const address = { ...before, ...changes };
  if (changes.request !== undefined && changes.before === undefined) address.before = null;
  if (changes.own === undefined && (address.view !== before.view || address.page !== before.page)) address.own = {};
  location.hash = writeAddress(address);
}
