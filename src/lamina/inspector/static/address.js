// The address of a view: everything that is chosen stands behind the # of the page, so that it can be sent on.
import { withQuestionMark } from "./dom.js";

const CHOICES = { view: "request", tab: "Sent", show: "entries", before: "", search: "", by: "", find: "" };

export function readAddress() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const words = path.split("/").filter(Boolean);
  const chosen = new URLSearchParams(query);
  const address = {
    session: words[0] === "s" ? words[1] : null,
    request: words[2] === "r" ? Number(words[3]) : null,
    segment: words[4] === "seg" ? decodeURIComponent(words.slice(5).join("/")) : null,
  };
  for (const [name, usual] of Object.entries(CHOICES)) address[name] = chosen.get(name) || usual;
  return address;
}

export function writeAddress(address) {
  const words = ["#"];
  if (address.session) words.push("s", address.session);
  if (address.session && address.request !== null) words.push("r", String(address.request));
  if (address.segment) words.push("seg", encodeURIComponent(address.segment));
  const query = new URLSearchParams();
  for (const [name, usual] of Object.entries(CHOICES)) if (address[name] && address[name] !== usual) query.set(name, address[name]);
  return words.join("/") + withQuestionMark(query);
}

export function go(changes) {
  const address = { ...readAddress(), ...changes };
  if (changes.request !== undefined && changes.before === undefined) address.before = "";
  location.hash = writeAddress(address);
}

// The address of a session, or of one of its requests, with nothing else chosen.
export const linkTo = (session, request = null) => writeAddress({ session, request, segment: null });
