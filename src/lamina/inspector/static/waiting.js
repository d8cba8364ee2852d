// What the page shows while it waits: after a moment that work is under way, and after a second how far it is and how
// long the rest takes. Several answers may be under way at a time; the oldest one is shown.
import { h, number, replace, span } from "./dom.js";

const SHOW_AFTER = 200; // milliseconds
const ASK_AFTER = 1000;
const ASK_EVERY = 400;

const waiting = [];

// Shows that an answer is under way until the function that it returns is called. `look` asks how far it is.
export function beginWaiting(look) {
  const job = { look, since: performance.now(), far: null };
  waiting.push(job);
  setTimeout(showWaiting, SHOW_AFTER);
  const timer = setTimeout(() => askHowFar(job), ASK_AFTER);
  return () => {
    clearTimeout(timer);
    waiting.splice(waiting.indexOf(job), 1);
    showWaiting();
  };
}

async function askHowFar(job) {
  if (!waiting.includes(job)) return;
  try {
    job.far = await job.look();
  } catch {
    job.far = null; // the server is busy or gone: the answer itself will tell
  }
  showWaiting();
  setTimeout(() => askHowFar(job), ASK_EVERY);
}

function showWaiting() {
  const box = document.getElementById("waiting");
  const job = waiting[0];
  box.hidden = !job || performance.now() - job.since < SHOW_AFTER - 20;
  if (box.hidden) return;
  const far = job.far;
  if (!far || !far.total) {
    replace(box, h("progress", { "aria-label": "Working" }), h("span", {}, "Working …"));
    return;
  }
  const left = far.seconds_left === null ? "" : `, about ${span(Math.ceil(far.seconds_left))} left`;
  replace(box, h("progress", { max: far.total, value: far.done, "aria-label": far.what }), h("span", {}, `${far.what}: ${number(far.done)} of ${number(far.total)}${left}`));
}
