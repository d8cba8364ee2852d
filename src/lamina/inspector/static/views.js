// The views, pages and actions of the inspector, in the order in which they are offered. A new one is added here, and
// its module is named in `one_file.MODULES`.
import { get, isSaved, makeAddress } from "./api.js";
import { copy, download } from "./dom.js";
import { addAction, addPage, addView } from "./registry.js";
import { goToStop, hasTour } from "./tour.js";
import { drawRequest } from "./request.js";
import { drawRequests } from "./requests.js";
import { drawCompare, drawTotals, drawVisible } from "./questions.js";
import { drawAlternatives } from "./alternatives.js";
import { drawOverview } from "./overview.js";
import { addSharing } from "./sharing.js";

const isServed = () => !isSaved;
const requestPath = (kind, { address }) => `${kind}/${address.session}/${address.request}`;
const saveJson = (name, value) => download(`${name}.json`, JSON.stringify(value, null, 2));

export function registerViews() {
  addView({ name: "request", title: "Request", draw: drawRequest });
  addView({ name: "requests", title: "Requests", draw: drawRequests });
  addView({ name: "compare", title: "Compare", draw: drawCompare });
  addView({ name: "whatif", title: "What if", draw: drawAlternatives });
  addView({ name: "visible", title: "Was it visible?", draw: drawVisible });
  addView({ name: "totals", title: "Totals", draw: drawTotals });

  addPage({ name: "overview", title: "Overview", draw: drawOverview });

  addAction({ place: "session", name: "tour", title: "Take the tour", hint: "Six things that happened in this session", isThere: ({ session }) => hasTour(session), run: ({ session }) => goToStop(session, 1) });
  addAction({ place: "session", name: "figures", title: "Download the figures", hint: "What the strip shows, as JSON", run: ({ session }) => saveJson("session", session) });

  addSharing();

  addAction({ place: "sessions", name: "download-sessions", title: "Download the list", hint: "What the list shows, as JSON", run: ({ list }) => saveJson("sessions", list) });

  addAction({ place: "request", name: "copy-json", title: "Copy as JSON", isThere: isServed, run: async (shown) => copy(JSON.stringify(await get(requestPath("export", shown), shown.address.settings), null, 2)) });
  addAction({ place: "request", name: "download-request", title: "Download the request", isDownload: true, isThere: isServed, href: (shown) => makeAddress(requestPath("export", shown), shown.address.settings) });
  addAction({ place: "request", name: "download-figures", title: "Download the figures", hint: "The entries of this request, as JSON", run: ({ request }) => saveJson(`request-${request.call.number + 1}`, request) });
}
