// What pages cannot do without a script: send what changes something, with the header that the API asks for, and follow a redrive.
"use strict";

const grouped = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, "\u202f");

/** Asks the API. Throws what it says if it says no. */
async function ask(path, method) {
  const answer = await fetch(path, { method, headers: { "X-Dlx-Proxy-Request": "1" }, cache: "no-store" });
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(said.detail || `${answer.status} ${answer.statusText}`);
  return said;
}

// === forms that move messages

function order(form) {
  const say = form.querySelector("output");
  const [dry, real] = form.querySelectorAll("button[type=submit]");
  const typed = form.querySelector("[data-typed]");
  const named = () => !typed || typed.value === form.dataset.name;
  let counted = !("counted" in form.dataset);
  let busy = false;

  const choose = () => {
    const to = form.querySelector("[name=to]:checked");
    for (const part of form.querySelectorAll("[data-for]")) {
      part.hidden = !to || part.dataset.for !== to.value;
      const input = part.querySelector("input");
      input.disabled = part.hidden;
      input.required = !part.hidden && input.name !== "to-routing-key";
    }
  };
  const allow = () => {
    dry.disabled = busy;
    real.disabled = busy || !counted || !named();
  };
  const write = (text, isProblem) => {
    say.textContent = text;
    say.classList.toggle("problem", isProblem);
  };

  /** The path of the API with the fields that are filled. */
  const path = (isDry) => {
    const fields = new URLSearchParams();
    for (const [name, value] of new FormData(form)) {
      if (name !== "to" && name !== "dry-run" && value !== "") fields.append(name, value);
    }
    if (isDry) fields.append("dry-run", "true");
    const [base, query] = form.dataset.order.split("?");
    return `${base}?${[query, fields.toString()].filter(Boolean).join("&")}`;
  };

  /** What a dry run found. */
  const sum = (found) => {
    const limit = Number(form.elements.limit?.value) || Infinity;
    const number = Math.min(found.matched, limit);
    const more = found.stopped === "end" ? "" : "At least ";
    const would = form.dataset.name === undefined ? "would go" : "would be removed";
    return [`${more}${grouped(number)} ${number === 1 ? "message" : "messages"} ${would}.`, ...found.notes].join("\n");
  };

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const isDry = event.submitter === dry;
    if (busy || (!isDry && (!counted || !named()))) return;
    busy = true;
    allow();
    write(isDry ? "Counting …" : "Beginning …", false);
    try {
      const said = await ask(path(isDry), "POST");
      if (isDry) {
        counted = true;
        write(sum(said), false);
      } else {
        location.assign(`${form.dataset.redrives}/redrives/${said.id}`);
      }
    } catch (problem) {
      write(problem.message, true);
    }
    busy = false;
    allow();
  });
  form.addEventListener("input", (event) => {
    // Another order: its number is not known yet.
    if (event.target !== typed && "counted" in form.dataset) {
      counted = false;
      write("", false);
    }
    choose();
    allow();
  });
  choose();
  allow();
}

// === a redrive that goes on

function watch(place) {
  const parts = Object.fromEntries([...place.querySelectorAll("[data-show]")].map((part) => [part.dataset.show, part]));
  const put = (part, text) => {
    // Only what is new is told to those who listen.
    if (part.textContent !== text) part.textContent = text;
  };
  let timer;
  let ended = parts.actions.hidden;

  const show = (now) => {
    ended = now.ended !== null;
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
    parts.stay.replaceChildren(...(stay.length ? stay : ["none"]).map((text) => {
      const item = document.createElement("li");
      item.textContent = text;
      return item;
    }));
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
    try {
      show(await ask(place.dataset.watch, "GET"));
      complain();
    } catch (problem) {
      complain(problem);
    }
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
  const parts = Object.fromEntries([...place.querySelectorAll("[data-show]")].map((part) => [part.dataset.show, part]));
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
document.querySelectorAll("form.order").forEach(order);
document.querySelectorAll("[data-watch]").forEach(watch);
