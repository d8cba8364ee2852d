// A session that is running: its new requests, whether the page follows them, and what somebody should know of at once.
import { isSaved } from "./api.js";
import { button, h, percent, plural, replace } from "./dom.js";
import { describeLoss, isLost } from "./strip.js";

const RUNNING = 120; // seconds after its last request in which a session counts as running
const NEAR = 0.9; // the share of the window from which on a cut is near

let isFollowing = false;

export function isRunning(session) {
  if (isSaved || !session.calls.length) return false;
  const last = session.calls[session.calls.length - 1];
  const ended = (last.at || 0) + (last.last || 0);
  return Date.now() / 1000 - ended < RUNNING;
}

export function isFollowed() {
  return isFollowing;
}

// The line above the strip: how many requests are new, and whether the page follows. What one reads does not move.
export function showLive(box, session, selected, onLatest) {
  const last = session.calls[session.calls.length - 1];
  const newer = session.calls.filter((call) => call.number > selected).length;
  const follow = button(isFollowing ? "Following" : "Follow", () => {
    isFollowing = !isFollowing;
    if (isFollowing) onLatest(last.number);
    else showLive(box, session, selected, onLatest);
  }, { class: "chip", id: "follow", "aria-pressed": String(isFollowing), title: "Always show the newest request" });
  const jump = newer && !isFollowing ? button(`${plural(newer, "newer request")} ↓`, () => onLatest(last.number), { class: "chip", id: "newer" }) : null;
  replace(box, isRunning(session) ? [h("span", { class: "live" }, "live"), follow] : null, isRunning(session) ? jump : null);
}

// What somebody should know of the requests that came since the last look.
export function findNotices(session, lastNumber) {
  const notices = [];
  const added = session.calls.filter((call) => call.number > lastNumber);
  for (const call of added) {
    if (isLost(call)) notices.push(`Request ${call.number + 1}: ${describeLoss(call)}.`);
    if (call.cut) notices.push(`Request ${call.number + 1}: lamina made a cut (${call.cut}).`);
  }
  const last = added[added.length - 1];
  if (last && !last.cut && last.tokens > NEAR * session.window) notices.push(`A cut is near: request ${last.number + 1} takes ${percent(last.tokens, session.window)} of the window.`);
  return notices;
}

export function showNotices(notices) {
  const box = document.getElementById("notices");
  for (const words of notices.slice(-3)) {
    const notice = h("div", { class: "notice" }, h("span", {}, words), button("✕", () => notice.remove(), { class: "quiet", "aria-label": "Close this notice" }));
    box.append(notice);
  }
  while (box.children.length > 3) box.firstChild.remove();
}
