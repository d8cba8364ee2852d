// What a reader takes along: a session or a span of it as a file, and a link to the place that is shown.
import { isSaved, makeAddress } from "./api.js";
import { copy } from "./dom.js";
import { addAction } from "./registry.js";

export function addSharing() {
  const isServed = () => !isSaved;
  for (const place of ["session", "request"]) {
    addAction({ place, name: "copy-link", title: "Copy a link to this place", hint: "For a colleague who can open this page", isThere: isServed, run: () => copy(location.href) });
  }
  addAction({ place: "session", name: "save-page", title: "Save as one page", hint: "The session as one HTML file, with everything in it", isDownload: true, isThere: isServed, href: (shown) => saveAddress(shown, false) });
  addAction({ place: "session", name: "save-redacted", title: "Save as one page, redacted", hint: "Names and sizes stay; every text becomes a mark", isDownload: true, isThere: isServed, href: (shown) => saveAddress(shown, true) });
}

// If a span is chosen, only its requests are saved.
function saveAddress({ address }, isRedacted) {
  return makeAddress(`save/${address.session}`, { ...address.settings, from: address.from, to: address.to, redact: isRedacted ? "1" : "" });
}
