// The page of the server. Names and answers are shown as text, never as markup.

const MOST_SHOWN = 20000; // characters of an answer
const main = document.getElementById("models");
let token = ""; // only in memory

function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key.includes("-") || key === "for" || key === "class") node.setAttribute(key, value);
    else node[key] = value;
  }
  node.append(...children);
  return node;
}

function headers(more = {}) {
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

function shapeOf(shape) {
  return `[${shape.map((size) => (size < 0 ? "any" : size)).join(", ")}]`;
}

function table(model) {
  const row = (kind, each) =>
    make(
      "tr",
      {},
      make("td", {}, kind),
      make("td", {}, each.name),
      make("td", {}, each.datatype || "any"),
      make("td", {}, shapeOf(each.shape)),
    );
  const names = ["", "name", "type", "shape"].map((name) => make("th", { scope: "col" }, name));
  const rows = [...model.inputs.map((each) => row("input", each)), ...model.outputs.map((each) => row("output", each))];
  if (!rows.length) return make("p", {}, "This model declares no inputs: it takes any picture, text or JSON.");
  return make("table", {}, make("thead", {}, make("tr", {}, ...names)), make("tbody", {}, ...rows));
}

// A field for one input. `value()` is its file, or its text.
function field(input, id, send) {
  const text = make("textarea", { id, spellcheck: false });
  const numbers = input.form === "numbers";
  if (numbers && input.sample !== null) text.value = JSON.stringify(input.sample);
  if (numbers && input.sample === null) text.placeholder = `JSON; if it is empty: ${input.count} zeros`;
  if (!numbers) text.placeholder = input.form === "picture" ? "or text" : "text or JSON";
  const picker = make("input", { type: "file", id: `${id}-file`, "aria-label": `File for ${input.name}` });
  const shown = make("img", { alt: "", hidden: true });
  const drop = make("div", { class: "drop" }, shown, make("span", {}, "Drop a file here, or choose one:"), picker);
  let file = null;
  const take = (given) => {
    file = given;
    if (shown.src) URL.revokeObjectURL(shown.src);
    shown.hidden = !given?.type.startsWith("image/");
    if (shown.hidden) shown.removeAttribute("src");
    else [shown.src, shown.alt] = [URL.createObjectURL(given), `Preview of ${given.name}`];
  };
  picker.addEventListener("change", () => take(picker.files[0] ?? null));
  text.addEventListener("input", () => (picker.value = "") || take(null));
  drop.addEventListener("dragover", (event) => event.preventDefault() || drop.classList.add("over"));
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  const dropped = (given) => {
    drop.classList.remove("over");
    take(given);
    send();
  };
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    event.stopPropagation();
    if (event.dataTransfer.files[0]) dropped(event.dataTransfer.files[0]);
  });
  const label = make("label", { for: id }, input.name);
  const value = () => file ?? (numbers && !text.value.trim() ? JSON.stringify(Array(input.count).fill(0)) : text.value);
  return { input, dropped, value, nodes: [label, drop, text] };
}

function isJson(text) {
  try {
    return JSON.parse(text) !== undefined;
  } catch {
    return false;
  }
}

// What a request sends: a form for declared inputs, else the file or the text itself.
function bodyOf(model, fields) {
  if (!model.inputs.length) {
    const value = fields[0].value();
    const type = value instanceof File ? value.type || "application/octet-stream" : isJson(value) ? "application/json" : "text/plain";
    return { body: value, headers: headers({ "Content-Type": type, Accept: "application/json" }) };
  }
  const body = new FormData();
  for (const each of fields) body.append(each.input.name, each.value());
  return { body, headers: headers({ Accept: "application/json" }) };
}

// The pictures in an answer: {"base64": "…"} of a known type, at most eight.
function picturesIn(value, found = []) {
  if (found.length === 8 || value === null || typeof value !== "object") return found;
  const data = value.base64;
  if (typeof data === "string") {
    const type = { "/9j/": "jpeg", iVBO: "png", R0lG: "gif", UklG: "webp" }[data.slice(0, 4)];
    if (type) found.push(`data:image/${type};base64,${data}`);
  } else for (const each of Object.values(value)) picturesIn(each, found);
  return found;
}

function shownAnswer(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    return [make("pre", { tabIndex: 0 }, text.slice(0, MOST_SHOWN))];
  }
  const pictures = picturesIn(value).map((src) => make("img", { src, alt: "A picture of the answer" }));
  const long = (key, each) => (typeof each === "string" && each.length > 200 && key === "base64" ? `${each.slice(0, 60)}…` : each);
  return [...pictures, make("pre", { tabIndex: 0 }, JSON.stringify(value, long, 1).slice(0, MOST_SHOWN))];
}

function form(model, index) {
  const status = make("span", { class: "status", role: "status" });
  const output = make("output", {});
  const button = make("button", { type: "submit" }, "Run");
  const send = async () => {
    button.disabled = true;
    status.className = "status";
    status.textContent = "Running…";
    const started = performance.now();
    try {
      const answer = await fetch(model.path, { method: "POST", ...bodyOf(model, fields) });
      const text = await answer.text();
      status.classList.add(answer.ok ? "good" : "bad");
      status.textContent = `${answer.status} in ${Math.round(performance.now() - started)} ms`;
      output.replaceChildren(...shownAnswer(text));
    } catch (error) {
      status.classList.add("bad");
      status.textContent = `The server does not answer: ${error.message}`;
      output.replaceChildren();
    }
    button.disabled = false;
  };
  const inputs = model.inputs.length ? model.inputs : [{ name: "data", form: model.picture ? "picture" : "text" }];
  const fields = inputs.map((input, number) => field(input, `input-${index}-${number}`, send));
  const node = make("form", {}, ...fields.flatMap((each) => each.nodes), make("div", { class: "row" }, button, status), output);
  node.addEventListener("submit", (event) => event.preventDefault() || send());
  return { node, fields };
}

function programs(model) {
  const code = make("code", {});
  const copy = make("button", { type: "button", class: "copy" }, "Copy");
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(code.textContent);
    copy.textContent = "Copied";
    setTimeout(() => (copy.textContent = "Copy"), 1500);
  });
  const buttons = Object.entries(model.snippets).map(([name, text]) => {
    const button = make("button", { type: "button" }, name);
    button.addEventListener("click", () => {
      code.textContent = text;
      for (const each of buttons) each.setAttribute("aria-pressed", String(each === button));
    });
    return button;
  });
  buttons[0].click();
  const group = make("div", { class: "row", role: "group", "aria-label": "Language" }, ...buttons, copy);
  return [make("h3", {}, "Use it in a program"), group, make("pre", { tabIndex: 0 }, code)];
}

function card(model, index) {
  const { node, fields } = form(model, index);
  const versions = make("small", {}, `version ${model.versions.join(", ")}`);
  const title = make("h2", { id: `model-${index}` }, model.name, " ", versions);
  const parts = [title, table(model), make("h3", {}, "Try it"), node, ...programs(model)];
  return { fields, node: make("section", { "aria-labelledby": title.id }, ...parts) };
}

function show(found) {
  document.getElementById("server").textContent = found.server;
  const cards = found.models.map(card);
  const others = found.unavailable.map((each) =>
    make("section", {}, make("h2", {}, each.name, " ", make("small", {}, `${each.state.toLowerCase()}: ${each.reason}`))),
  );
  if (!cards.length) others.unshift(make("p", {}, "No model is ready."));
  main.replaceChildren(...cards.map((each) => each.node), ...others);
  // A file that is dropped beside the fields goes to the first one that takes files.
  const fields = cards.flatMap((each) => each.fields);
  const first = fields.find((each) => each.input.form === "picture") ?? fields.find((each) => each.input.form === "text");
  document.body.addEventListener("dragover", (event) => event.preventDefault());
  document.body.addEventListener("drop", (event) => {
    event.preventDefault();
    const own = cards.find((each) => each.node.contains(event.target));
    const target = own?.fields.find((each) => each.input.form !== "numbers") ?? own?.fields[0] ?? first;
    if (target && event.dataTransfer.files[0]) target.dropped(event.dataTransfer.files[0]);
  });
}

function askForToken() {
  const input = make("input", { type: "password", id: "token", autocomplete: "off", required: true });
  const label = make("label", { for: "token" }, "This server needs a token");
  const button = make("div", { class: "row" }, make("button", { type: "submit" }, "Show the models"));
  const node = make("form", {}, label, input, button);
  node.addEventListener("submit", (event) => {
    event.preventDefault();
    token = input.value;
    load();
  });
  main.replaceChildren(make("section", {}, node));
  input.focus();
}

async function load() {
  main.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch("docs/models.json", { headers: headers() });
    if (answer.status === 401) askForToken();
    else if (answer.ok) show(await answer.json());
    else main.replaceChildren(make("p", { class: "bad", role: "alert" }, (await answer.json()).error));
  } catch (error) {
    main.replaceChildren(make("p", { class: "bad", role: "alert" }, `The server does not answer: ${error.message}`));
  }
  main.setAttribute("aria-busy", "false");
}

load();
