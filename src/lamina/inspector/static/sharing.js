// What a reader takes along: a session or a span of it as a file, and a link to the place that is shown.
import { isSaved, makeAddress } from "./api.js";
import { copy } from "./dom.js";
import { addAction } from "./registry.js";

const FORMATS = [
  ["html", "Save as one page", "The session as one HTML file, with everything in it"],
  ["har", "Save as HAR", "Requests and answers, for the network view of a browser"],
  ["json", "Save as JSON", "Requests, answers and figures"],
];

export function addSharing() {
  const isServed = () => !isSaved;
  for (const place of ["session", "request"]) {
    addAction({ place, name: "copy-link", title: "Copy a link to this place", hint: "For a colleague who can open this page", isThere: isServed, run: () => copy(location.href) });
  }
  for (const [format, title, hint] of FORMATS) {
    addAction({ place: "session", name: `save-${format}`, title, hint, isDownload: true, isThere: isServed, href: (shown) => saveAddress(shown, format, false) });
  }
  addAction({ place: "session", name: "save-redacted", title: "Save as one page, redacted", hint: "Names and sizes stay; every text becomes a mark", isDownload: true, isThere: isServed, href: (shown) => saveAddress(shown, "html", true) });
}

// If a span is chosen, only its requests are saved.
function saveAddress({ address }, format, isRedacted) {
  return makeAddress(`save/${address.session}/${format}`, { ...address.settings, from: address.from, to: address.to, redact: isRedacted ? "1" : "" });
}
