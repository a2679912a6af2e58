
// === a message that is edited and sent back

function edit(form) {
  const say = form.querySelector("output");
  const button = form.querySelector("button");
  const isChanged = (field) => field.value !== field.defaultValue;

  /** What the API takes: only what was changed. */
  const change = () => {
    const { body } = form.elements, change = { headers: [], remove: [] };
    if (isChanged(body)) {
      const text = "crlf" in body.dataset ? body.value.replace(/\n/g, "\r\n") : body.value;
      change.body = { encoding: "text", text };
    }
    for (const field of form.querySelectorAll("[data-name]")) {
      const { name, type } = field.dataset;
      if (field.closest(".row").querySelector("[type=checkbox]").checked) change.remove.push(name);
      else if (isChanged(field)) change.headers.push({ name, type, value: field.value });
    }
    const name = form.elements["new-name"].value;
    if (name) change.headers.push({ name, type: "longstr", value: form.elements["new-value"].value });
    return change;
  };

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    say.classList.remove("problem");
    say.textContent = "Sending …";
    try {
      const to = form.elements["to-queue"].value;
      const path = form.dataset.edit + (to && `?to-queue=${encodeURIComponent(to)}`);
      const headers = { "X-Dlx-Proxy-Request": "1", "Content-Type": "application/json" };
      const answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(change()) });
      const said = await answer.json().catch(() => ({}));
      if (!answer.ok) throw new Error(said.detail || `${answer.status} ${answer.statusText}`);
      location.assign(`${form.dataset.redrives}/redrives/${said.id}`);
    } catch (problem) {
      say.textContent = problem.message;
      say.classList.add("problem");
      button.disabled = false;
    }
  });
}

document.querySelectorAll("form.edit").forEach(edit);
