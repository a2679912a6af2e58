// What changes while somebody watches: how long ago things were.

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
