// What pages cannot do without a script: send what changes something, with the header that the API asks for, and follow a redrive.
"use strict";

const grouped = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, "\u202f");

const shown = (place) => Object.fromEntries([...place.querySelectorAll("[data-show]")].map((part) => [part.dataset.show, part]));

/** Asks the API. Throws what it says if it says no. */
async function ask(path, method, signal) {
  const answer = await fetch(path, { method, signal, headers: { "X-Dlx-Proxy-Request": "1" }, cache: "no-store" });
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(said.detail || `${answer.status} ${answer.statusText}`);
  return said;
}

// === the dialog that moves messages, and that changes policies

const VERBS = { redrives: "Send back", purges: "Purge", adopt: "Adopt", alter: "Take over", release: "Release" };

function mover(dialog) {
  const form = dialog.querySelector("form");
  const typed = form.querySelector("[data-typed]");
  const close = form.querySelector("[data-close]");
  const parts = shown(form);
  let what, query, which, found, counting, busy, isDone;
  const isPlan = () => ["adopt", "alter", "release"].includes(what);

  const path = (fields) => `${form.dataset.api}${what}?${[query, fields.toString()].filter(Boolean).join("&")}`;
  /** How many would go, as far as that is known. */
  const messages = () => {
    if (!found) return "messages";
    const limit = Number(form.elements.limit.value) || Infinity;
    const number = Math.min(found.matched, limit);
    const more = found.stopped === "end" || found.matched >= limit ? "" : "at least ";
    return `${more}${grouped(number)} ${number === 1 ? "message" : "messages"}`;
  };
  const show = () => {
    for (const part of form.querySelectorAll("[data-only]")) {
      part.hidden = part.disabled = part.dataset.only !== what;
    }
    const to = form.elements.to?.value;
    for (const part of form.querySelectorAll("[data-for]")) {
      const input = part.querySelector("input");
      part.hidden = input.disabled = part.dataset.for !== to;
      input.required = !part.hidden && input.name !== "to-routing-key";
    }
    const isNone = isPlan() ? found?.policies?.length === 0 : found?.matched === 0 && found.stopped === "end";
    const text = `${VERBS[what]} ${isPlan() ? which : messages()}`;
    const none = isPlan() ? "Nothing to change" : "No message matches any more";
    parts.title.textContent = isDone ? "Done" : isNone ? none : text;
    parts.go.textContent = busy ?? text;
    parts.go.disabled = Boolean(busy) || !found || isNone || Boolean(found.missing?.length) || (what === "purges" && typed.value !== form.dataset.name);
    parts.go.hidden = isDone;
    close.textContent = isDone ? "Close" : "Cancel";
  };
  /** What the API says of messages, or of policies. */
  const said = () => {
    const more = found.stopped === "end" ? [] : ["More messages may match. All of them go, up to your limit."];
    return found.says ? found.says.join("\n\n") : [...found.notes, ...more].join("\n");
  };
  const state = (text, isProblem = false) => {
    parts.state.textContent = text;
    parts.state.classList.toggle("problem", isProblem);
  };
  const count = async () => {
    const mine = counting = new AbortController();
    busy = isPlan() ? "Planning …" : "Counting …";
    show();
    let problem;
    try {
      found = await ask(path(new URLSearchParams({ "dry-run": "true" })), "POST", mine.signal);
    } catch (thrown) {
      problem = thrown;
    }
    if (mine.signal.aborted) return;
    busy = undefined;
    if (problem) [found, problem] = [undefined, problem.message];
    state(problem ?? said(), Boolean(problem));
    show();
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-move]");
    if (!button) return;
    const meant = button.closest(".moves").dataset;
    counting?.abort();
    form.reset();
    [what, query, which, busy, isDone] = [button.dataset.move, meant.query, meant.which, undefined, false];
    found = meant.count && { matched: Number(meant.count), stopped: "end", notes: [] };
    parts.which.textContent = what === "alter" ? "It is made anew with an intake exchange, while its clients stay connected." : isPlan() ? "All queues with the same policy go together." : `From ${form.dataset.name}${which}.`;
    parts.go.className = what === "purges" ? "danger" : "main";
    state("");
    show();
    dialog.showModal();
    if (!query.startsWith("id=")) count();
  });
  close.addEventListener("click", () => dialog.close());
  // It comes late: the dialog may be open again.
  dialog.addEventListener("close", () => dialog.open || (isDone ? location.reload() : counting?.abort()));
  form.addEventListener("input", show);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (parts.go.disabled) return;
    const given = [...new FormData(form)].filter(([name, value]) => name !== "to" && value !== "");
    busy = "Starting …";
    show();
    try {
      const begun = await ask(path(new URLSearchParams(given)), "POST");
      if (!isPlan()) return location.assign(`${form.dataset.vhost}/redrives/${begun.id}`);
      [found, busy, isDone] = [begun, undefined, true];
      state(`${said()}\n\nThe list of queues shows it within seconds.`);
      show();
      close.focus();
    } catch (problem) {
      busy = undefined;
      state(problem.message, true);
      show();
    }
  });
}

/** With messages selected, the buttons of a list are for these. */
function selects(bar) {
  const buttons = bar.querySelector(".moves");
  const link = bar.querySelector("[data-export]");
  const all = bar.querySelector("[data-all]");
  const boxes = [...document.querySelectorAll("td [type=checkbox]")];
  const title = shown(bar).number;
  const whole = { ...buttons.dataset, title: title.textContent, href: link.getAttribute("href") };
  const show = () => {
    const ids = boxes.filter((box) => box.checked).map((box) => `id=${box.value}`);
    const query = ids.join("&");
    const [path] = whole.href.split("?");
    all.checked = ids.length === boxes.length;
    all.indeterminate = ids.length > 0 && !all.checked;
    title.textContent = ids.length ? `${ids.length} selected` : whole.title;
    link.href = ids.length ? `${path}?${query}` : whole.href;
    if (ids.length) Object.assign(buttons.dataset, { query, which: "", count: ids.length });
    else [buttons.dataset.query, buttons.dataset.which] = [whole.query, whole.which], delete buttons.dataset.count;
  };
  all.addEventListener("change", () => {
    for (const box of boxes) box.checked = all.checked;
  });
  document.addEventListener("change", show);
  show();
}

// === a body

/** Indents JSON, and leaves each number and each text as it is. */
function indented(json) {
  const parts = json.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  let depth = 0;
  const line = () => "\n" + "  ".repeat(depth);
  return parts.map((part, at) => {
    if ("}]".includes(part)) depth -= 1;
    if ("}]".includes(part)) return "{[".includes(parts[at - 1]) ? part : line() + part;
    if ("{[".includes(part)) depth += 1;
    if ("{[".includes(part)) return "}]".includes(parts[at + 1]) ? part : part + line();
    return part === "," ? part + line() : part === ":" ? ": " : part;
  }).join("");
}

function pretty(button) {
  const body = document.querySelector("pre.body");
  const raw = body.textContent;
  const show = (isPretty) => {
    body.textContent = isPretty ? indented(raw) : raw;
    button.setAttribute("aria-pressed", String(isPretty));
  };
  button.hidden = false;
  button.addEventListener("click", () => show(button.ariaPressed !== "true"));
  show(true);
}

/** What is shown of the body. `navigator.clipboard` is missing where there is no TLS. */
function copies(button) {
  button.hidden = false;
  button.addEventListener("click", () => {
    getSelection().selectAllChildren(document.querySelector("pre.body"));
    button.textContent = document.execCommand("copy") ? "Copied" : "Selected";
  });
}

// === a redrive that goes on

function watch(place) {
  const parts = shown(place);
  const put = (part, text) => {
    // Only what is new is told to those who listen.
    if (part.textContent !== text) part.textContent = text;
  };
  const list = (part, texts) => part.replaceChildren(...texts.map((text) => {
    const item = document.createElement("li");
    item.textContent = text;
    return item;
  }));
  let timer;
  let ended = parts.actions.hidden;
  let before = [];

  /** Of the last ten answers, while nothing held it up. */
  const pace = (now) => {
    before = now.state === "running" ? [...before, { ...now, at: Date.now() }].slice(-10) : [];
    const seconds = (before.at(-1)?.at - before[0]?.at) / 1000;
    if (!(seconds > 0)) return ["–", "–"];
    const rate = (name) => (now[name] - before[0][name]) / seconds;
    const left = Math.min((now.ready - now.seen) / rate("seen"), ((now.limit ?? Infinity) - now.gone) / rate("gone"));
    const speed = rate("gone") < 10 ? rate("gone").toFixed(1) : grouped(Math.round(rate("gone")));
    const [unit, name] = UNITS.find(([unit]) => left >= 2 * unit) ?? UNITS.at(-1);
    return [`${speed} a second`, now.ready === null || !isFinite(left) ? "unknown" : `${Math.ceil(left / unit)} ${name}`];
  };
  const show = (now) => {
    ended = now.ended !== null;
    const [speed, left] = pace(now);
    put(parts.rate, speed);
    put(parts.left, left);
    const all = Math.max(now.ready ?? 1, 1);
    parts.bar.max = all;
    parts.bar.value = ended ? all : Math.min(now.seen, all);
    put(parts.state, now.state);
    put(parts.ready, now.ready === null ? "unknown" : grouped(now.ready));
    put(parts.seen, grouped(now.seen));
    put(parts.gone, grouped(now.gone));
    parts.cause.hidden = !now.cause;
    put(parts.cause, now.cause ?? "");
    const stay = Object.entries(now.stay).map(([why, number]) => `${why}: ${grouped(number)}`);
    list(parts.stay, stay.length ? stay : ["none"]);
    parts.notes.hidden = !now.notes.length;
    list(parts.notes, now.notes);
    for (const button of parts.actions.querySelectorAll("button")) {
      const had = document.activeElement === button;
      button.hidden = !button.dataset.when.split(" ").includes(now.state);
      if (had && button.hidden) parts.actions.querySelector("button:not([hidden])")?.focus();
    }
    parts.actions.hidden = ended;
  };
  const complain = (problem) => {
    parts.problem.hidden = !problem;
    put(parts.problem, problem ? problem.message : "");
  };
  const next = async () => {
    clearTimeout(timer);
    if (ended || document.hidden) return;
    const slow = setTimeout(() => complain(new Error("Waiting for an answer: these numbers are old.")), 3000);
    try {
      show(await ask(place.dataset.watch, "GET", AbortSignal.timeout(30000)));
      complain();
    } catch (problem) {
      complain(problem);
    }
    clearTimeout(slow);
    clearTimeout(timer);
    timer = setTimeout(next, 1000);
  };

  for (const button of place.querySelectorAll("[data-tell]")) {
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        show(await ask(button.dataset.tell, "POST"));
        complain();
      } catch (problem) {
        complain(problem);
      }
      button.disabled = false;
      next();
    });
  }
  document.addEventListener("visibilitychange", next);
  next();
}

// === dead letters as they come

function live(place) {
  const MOST = 200;
  const parts = shown(place);
  let source;
  let paused = [];
  let isPaused = false;

  const cell = (row, label, text, kind = "") => {
    const cell = row.insertCell();
    cell.dataset.label = label;
    cell.className = kind;
    const name = document.createElement("bdi");
    name.textContent = text;
    cell.append(name);
  };
  const show = (death) => {
    const by = death["rejected-by"];
    const who = by ? [by.user, by.connection, by.consumer, by.host].filter(Boolean).join(", ") : "–";
    const row = parts.rows.insertRow(0);
    cell(row, "Time", death.time.replace("T", " ").replace("Z", ""));
    cell(row, "Died in", death.queue);
    cell(row, "Reason", death.reason);
    cell(row, "Exchange", death.exchange || "(empty)");
    cell(row, "Routing key", death["routing-key"] || "(empty)");
    cell(row, "Outcome", death.cause ? `${death.outcome}: ${death.cause}` : death.outcome);
    cell(row, "Rejected by", who);
    cell(row, "Bytes", grouped(death.bytes), "number");
    while (parts.rows.rows.length > MOST) parts.rows.deleteRow(-1);
  };
  const state = (text) => {
    if (parts.state.textContent !== text) parts.state.textContent = text;
  };
  const note = (text) => {
    const item = document.createElement("li");
    item.textContent = text;
    parts.notes.append(item);
    parts.notes.hidden = false;
    while (parts.notes.children.length > 5) parts.notes.firstChild.remove();
  };
  const come = (death) => {
    if (!isPaused) return show(death);
    paused.push(death);
    paused = paused.slice(-MOST);
    state(`paused, ${paused.length} more`);
  };

  const listen = (after) => {
    // The browser comes back by itself, and says where it was.
    source = new EventSource(`${place.dataset.live}?after=${after}`);
    source.addEventListener("open", () => isPaused || state("live"));
    source.addEventListener("error", () => state(source.readyState === EventSource.CLOSED ? "ended: load the page again" : "connecting again"));
    source.addEventListener("death", (event) => come(JSON.parse(event.data)));
    source.addEventListener("missed", () => note("Some are missing here: there were more than the proxy remembers."));
    source.addEventListener("problem", (event) => note(JSON.parse(event.data)));
  };
  parts.pause.addEventListener("click", () => {
    isPaused = !isPaused;
    parts.pause.setAttribute("aria-pressed", String(isPaused));
    if (!isPaused) paused.splice(0).forEach(show);
    state(isPaused ? "paused" : "live");
  });
  ask(`${place.dataset.live}?limit=100`, "GET").then((last) => {
    last.deaths.forEach(show);
    last.notes.forEach(note);
    listen(last.next);
  }).catch((problem) => state(problem.message));
}

document.querySelectorAll("[data-live]").forEach(live);
document.querySelectorAll("dialog").forEach(mover);
document.querySelectorAll("[data-select]").forEach(selects);
document.querySelectorAll("[data-pretty]").forEach(pretty);
document.querySelectorAll("[data-copy]").forEach(copies);

document.querySelectorAll("[data-watch]").forEach(watch);
