// What changes while somebody watches: how long ago things were, and the first page.

// === times: how long ago, and on hover when, in UTC or in the browser's zone

const ZONE = "dlx-proxy-times";
const UNITS = [[86400, "days"], [3600, "h"], [60, "min"], [1, "s"]];

/** Throws nothing where a browser keeps nothing. */
function kept(name, value) {
  try {
    if (value !== undefined) localStorage.setItem(name, value);
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function ago(at) {
  const seconds = Math.max(0, Math.floor((Date.now() - at) / 1000));
  const [unit, name] = UNITS.find(([unit]) => seconds >= 2 * unit) ?? UNITS.at(-1);
  return `${Math.floor(seconds / unit)} ${name} ago`;
}

function clock(at) {
  const zone = kept(ZONE) === "local" ? {} : { timeZone: "UTC" };
  const form = new Intl.DateTimeFormat("en", { timeZoneName: "short", ...zone });
  const name = form.formatToParts(at).find((part) => part.type === "timeZoneName").value;
  return `${at.toLocaleString("sv-SE", zone)} ${name}`;
}

/** A `time` shows how long ago it was, and when on hover; with `data-exact` the other way round. */
function times() {
  // A text that somebody selects stays as it is.
  if (!getSelection().isCollapsed) return;
  for (const one of document.querySelectorAll("time[datetime]")) {
    const at = new Date(one.dateTime);
    if (isNaN(at)) continue;
    const [text, title] = "exact" in one.dataset ? [clock(at), ago(at)] : [ago(at), clock(at)];
    if (one.textContent !== text) one.textContent = text;
    if (one.title !== title) one.title = title;
  }
}

for (const button of document.querySelectorAll("[data-zone]")) {
  const say = () => button.textContent = kept(ZONE) === "local" ? "Times: local" : "Times: UTC";
  button.addEventListener("click", () => {
    kept(ZONE, kept(ZONE) === "local" ? "utc" : "local");
    say();
    times();
  });
  button.title = "Local time or UTC";
  button.disabled = false;
  say();
}
setInterval(() => document.hidden || times(), 5000);
document.addEventListener("visibilitychange", times);
times();

// === the first page, which is fetched again, section by section

function renew() {
  const EVERY = 5000;
  const SLOW = 2000;
  const main = document.querySelector("main");
  const line = () => main.querySelector("[data-renew]");
  let seen = [];
  let last = performance.now();
  let lost = "";
  let asked = 0; // when, while there is no answer
  let pressed = false;

  /** Nothing moves under the hands of somebody who types, selects, clicks or is asked. */
  const inUse = () => document.hidden || pressed || !getSelection().isCollapsed || document.querySelector("dialog[open]") ||
    (main.contains(document.activeElement) && document.activeElement.matches("input, select, textarea"));
  const say = () => {
    const since = `${Math.round((performance.now() - last) / 1000)} s ago`;
    const trouble = lost || (asked && performance.now() - asked > SLOW ? "Waiting for an answer" : "");
    line().textContent = trouble ? `${trouble}, last answer ${since}` : `Updated ${since}`;
    line().classList.toggle("problem", Boolean(lost));
    main.classList.toggle("stale", Boolean(trouble));
  };
  const put = (fresh) => {
    const [old, parts] = [[...main.children], [...fresh.children]];
    const texts = parts.map((part) => part.outerHTML);
    const key = (one) => one.tagName + one.getAttribute("href") + one.textContent;
    const open = [...main.querySelectorAll("details[open] summary")].map(key);
    const focused = main.contains(document.activeElement) && main !== document.activeElement && key(document.activeElement);
    if (old.length !== parts.length) main.replaceChildren(...parts);
    else parts.forEach((part, at) => texts[at] === seen[at] || old[at].replaceWith(part));
    seen = texts;
    for (const one of main.querySelectorAll("summary")) if (open.includes(key(one))) one.parentElement.open = true;
    if (focused && !main.contains(document.activeElement)) {
      [...main.querySelectorAll("a, button, summary, [tabindex]")].find((one) => key(one) === focused)?.focus({ preventScroll: true });
    }
    times();
  };
  const next = async () => {
    if (!inUse()) {
      asked = performance.now();
      try {
        const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(6 * EVERY) });
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
        lost = answer.ok ? "" : `No news: ${fresh?.querySelector("[role=alert]")?.textContent ?? answer.status}`;
        if (answer.ok) last = performance.now();
        if (answer.ok && !inUse()) put(fresh);
      } catch (problem) {
        const why = problem.name === "TimeoutError" ? "No answer for 30 s" : "Connection lost";
        lost = `${why}: see whether the proxy runs. This page tries again`;
      }
      asked = 0;
      say();
    }
    setTimeout(next, EVERY);
  };
  addEventListener("pointerdown", () => pressed = true);
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => pressed = false);
  setInterval(() => document.hidden || say(), 1000);
  setTimeout(next, EVERY);
}

if (document.querySelector("[data-renew]")) renew();

// === a page that takes a while to come

addEventListener("beforeunload", () => document.body.classList.add("waits"));
addEventListener("pageshow", () => document.body.classList.remove("waits"));
