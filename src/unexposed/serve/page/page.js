// The page of `unexposed serve`: users, items and imagined users of one model.
//
// The state of a view is the hash of its address. Ids and titles come from a log and are written
// as text nodes only. Parts: ids and words, asking the server, elements, the address, lists,
// search, views, start.

const PAUSE = 140; // ms without typing or sliding before the server is asked
const KNOWN_RANKS = 200; // ranks of the untouched list that a moved item is compared with
const LENGTHS = [10, 20, 50];
const FEW = 12; // clicks shown before "Show all"
const MOST_IMAGINED = 100;
const HEALTH_EVERY = 10_000; // ms
const STEPS_APART = 1_000; // ms; slides closer than this are one step of Back

// ---- ids and words

// Integers beyond 2^53 stay whole: BigInt when read, a bare number when sent.
const revived = (_, value, context) =>
  Number.isInteger(value) && !Number.isSafeInteger(value) && context?.source
    ? BigInt(context.source)
    : value;
const raw = (_, value) =>
  typeof value === "bigint" ? (JSON.rawJSON?.(String(value)) ?? Number(value)) : value;
const toJson = (value) => JSON.stringify(value, raw);
const textOf = (id) => (typeof id === "object" ? toJson(id) : String(id));
const same = (one, other) => textOf(one) === textOf(other);

const counted = (n, one, many = `${one}s`) =>
  `${n.toLocaleString("en-US")} ${n === 1 ? one : many}`;
const percent = (share) => {
  const digits = share > 0.0995 || share === 0 ? 0 : share >= 0.001 ? 1 : 2;
  return `${(share * 100).toFixed(digits)} %`;
};
const nameOf = (entry) => entry.title ?? textOf(entry.item);

// ---- asking the server

class Refusal extends Error {} // its message is a sentence for the reader

const running = new Map();

// A signal for the newest question of its kind; the question before it is dropped.
function newest(kind) {
  running.get(kind)?.abort();
  const controller = new AbortController();
  running.set(kind, controller);
  return controller.signal;
}

function dropAll() {
  for (const kind of ["view", "list"]) newest(kind);
}

async function ask(path, { query, body, signal } = {}) {
  const address = query ? `${path}?${new URLSearchParams(query)}` : path;
  const how = body
    ? { method: "POST", headers: { "Content-Type": "application/json" }, body: toJson(body) }
    : {};
  let response, text;
  try {
    response = await fetch(address, { ...how, signal, cache: "no-store" });
    text = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal("The server does not answer. Is it still running?");
  }
  let answer;
  try {
    answer = JSON.parse(text, revived);
  } catch {
    throw new Refusal(`The server gave an answer that this page cannot read (status ${response.status}).`);
  }
  if (!response.ok) throw new Refusal(answer.error ?? `The server refused (status ${response.status}).`);
  return answer;
}

const later = (act, wait = PAUSE) => {
  let timer;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...given), wait);
  };
};

// ---- elements

const at = (id) => document.getElementById(id);

function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child != null && child !== false));
  return made;
}

function drawn(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const say = (sentence) => (at("said").textContent = sentence);
const waiting = (what = "Loading …") => el("p", { class: "state waits" }, what);
const empty = (sentence) => el("p", { class: "state" }, sentence);

function failed(error, again) {
  return el(
    "div",
    { class: "failed", role: "alert" },
    el("p", {}, error instanceof Refusal ? sentence(error.message) : "Something went wrong in this page."),
    el("button", { type: "button", onclick: again }, "Try again"),
  );
}

const sentence = (text) => {
  const ended = /[.!?…]$/.test(text) ? text : `${text}.`;
  return ended.charAt(0).toUpperCase() + ended.slice(1);
};

// Fill a place with what `make` gives; say what happens meanwhile, and what went wrong.
async function fill(place, make) {
  place.setAttribute("aria-busy", "true");
  if (!place.childElementCount) place.replaceChildren(waiting());
  try {
    const made = await make();
    place.replaceChildren(...[made].flat());
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof Refusal)) console.error(error);
    place.replaceChildren(failed(error, () => fill(place, make)));
  }
  place.removeAttribute("aria-busy");
}

// ---- the address

const share = (text, greatest) => {
  const value = Number(text ?? 0);
  return value > 0 && value <= greatest ? value : 0;
};

function readAddress() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const given = new URLSearchParams(query);
  const k = Number(given.get("k"));
  const state = {
    view: ["user", "item"].includes(path) && given.get("id") != null ? path : "start",
    id: given.get("id"),
    user: given.get("user"),
    clicks: [],
    penalty: share(given.get("penalty"), 1e6),
    exposure: share(given.get("exposure"), 1),
    k: LENGTHS.includes(k) ? k : LENGTHS[0],
  };
  if (path === "imagined") {
    state.view = "imagined";
    try {
      const clicks = JSON.parse(given.get("clicks") ?? "[]", revived);
      if (Array.isArray(clicks)) state.clicks = clicks.slice(0, MOST_IMAGINED);
    } catch {
      // a cut address: an imagined user without clicks
    }
  }
  return state;
}

function addressOf({ view, id, user, clicks = [], penalty = 0, exposure = 0, k = LENGTHS[0] }) {
  if (view === "start") return "#/";
  const query = new URLSearchParams();
  if (view === "imagined") {
    if (clicks.length) query.set("clicks", toJson(clicks));
  } else query.set("id", id);
  if (view === "item" && user != null) query.set("user", user);
  if (penalty) query.set("penalty", penalty);
  if (exposure) query.set("exposure", exposure);
  if (k !== LENGTHS[0]) query.set("k", k);
  return query.size ? `#/${view}?${query}` : `#/${view}`;
}

const userAddress = (id) => addressOf({ view: "user", id: textOf(id) });
const itemAddress = (id, user) => addressOf({ view: "item", id: textOf(id), user });

let lastSlide = 0;

function change(state, { sliding = false } = {}) {
  const joined = sliding && Date.now() - lastSlide < STEPS_APART;
  lastSlide = sliding ? Date.now() : 0;
  history[joined ? "replaceState" : "pushState"](null, "", addressOf(state));
}

// ---- lists

let model = null; // of /health
const seen = new Map(); // item as text → its title and clicks, as met in answers

function remember(entries) {
  for (const entry of entries) seen.set(textOf(entry.item), entry);
  return entries;
}

// Relevance or exposure: a number with a bar below it.
function shareCell(value, kind) {
  if (value == null) return el("td", { class: "share" }, "–");
  const filled = el("span");
  filled.style.setProperty("--share", Math.min(1, Math.max(0, value)));
  const bar = el("span", { class: "bar", "aria-hidden": "true" }, filled);
  return el("td", { class: `share ${kind}` }, percent(value), bar);
}

function itemCell(entry, user) {
  const id = entry.title == null ? null : `${textOf(entry.item)} · `;
  return el(
    "td",
    { class: "item" },
    el("a", { href: itemAddress(entry.item, user) }, nameOf(entry)),
    el("small", {}, id, counted(entry.clicks, "click")),
  );
}

// How an item moved against the untouched list, of which the reader saw the first k.
function moved(rank, before, k) {
  if (before === rank) return { kind: "same" };
  if (before == null) return { kind: "new", mark: "new", words: "new in the list" };
  if (before > k) return { kind: "new", mark: "new", words: `new in the list, was ${before}` };
  if (before > rank) return { kind: "up", mark: `↑ ${before - rank}`, words: `up ${before - rank}, was ${before}` };
  return { kind: "down", mark: `↓ ${rank - before}`, words: `down ${rank - before}, was ${before}` };
}

function placeCell(rank, move) {
  return el(
    "td",
    { class: "place" },
    String(rank),
    move?.mark &&
      el(
        "small",
        { class: move.kind, title: move.words },
        el("span", { "aria-hidden": "true" }, move.mark),
        el("span", { class: "unseen" }, `, ${move.words}`),
      ),
  );
}

const heads = (...names) =>
  el("thead", {}, el("tr", {}, names.map(([name, kind]) => name != null && el("th", { scope: "col", class: kind }, name))));

// A table of items; `extra` gives the cells before and after an item's name.
function table(caption, head, rows) {
  return el("table", {}, el("caption", { class: "unseen" }, caption), head, el("tbody", {}, rows));
}

const chances = () => model.scale !== "order";

function valueHeads() {
  return [
    chances() ? ["Relevance", "share"] : ["Score", "plain-number"],
    ...(model.has_exposure ? [["Exposure", "share"]] : []),
  ];
}

function valueCells(entry) {
  return [
    chances()
      ? shareCell(entry.relevance, "liked")
      : el("td", { class: "plain-number" }, entry.score == null ? "–" : entry.score.toPrecision(3)),
    model.has_exposure && shareCell(entry.exposure, "seen"),
  ];
}

function listTable(caption, entries, { moves = null, user = null } = {}) {
  const rows = entries.map((entry, n) => {
    const move = moves?.[n];
    const row = el("tr", {}, placeCell(entry.rank, move), itemCell(entry, user), valueCells(entry));
    row.dataset.item = textOf(entry.item);
    row.dataset.moved = move?.kind ?? "same";
    return row;
  });
  return table(caption, heads(["Rank", "place"], ["Item", "item"], ...valueHeads()), rows);
}

// Rows that moved glide from their old place.
function glide(from, place) {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const row of place.querySelectorAll("tr[data-item]")) {
    const top = from.get(row.dataset.item);
    const now = row.getBoundingClientRect().top;
    if (top == null) row.animate([{ opacity: 0 }, { opacity: 1 }], 350);
    else if (top !== now) row.animate([{ transform: `translateY(${top - now}px)` }, { transform: "none" }], { duration: 300, easing: "ease-out" });
  }
}

const places = (place) =>
  new Map([...place.querySelectorAll("tr[data-item]")].map((row) => [row.dataset.item, row.getBoundingClientRect().top]));

function summary(moves, left) {
  const [fresh, up, down] = ["new", "up", "down"].map((kind) => moves.filter((move) => move.kind === kind).length);
  if (!fresh && !up && !down && !left) return "The list stays as it was.";
  return `Against the untouched list: ${fresh} came in, ${left} left, ${up} went up, ${down} went down.`;
}

// A list with its sliders. `fetchList(rules, k, signal)` asks the server.
class Ranking {
  constructor(title, fetchList, { user = null, shown = () => {} } = {}) {
    Object.assign(this, { fetchList, user, shown, untouched: null });
    this.list = el("div", { class: "list" });
    this.root = el("section", { class: "card ranking", "aria-label": title }, el("h2", {}, title), this.controls(), this.list);
    this.soon = later(() => this.refresh());
  }

  controls() {
    const greatest = { logit: 2, probability: 0.25 }[model.scale] ?? 1;
    this.penalty = this.slider("penalty", "Popularity penalty", "Lowers items that many people clicked.", {
      max: greatest,
      step: greatest / 40,
      shown: (value) => String(Math.round(value * 1e4) / 1e4),
    });
    this.exposure =
      model.has_exposure &&
      this.slider("exposure", "Minimum exposure", "Keeps items that the user was probably shown.", { max: 1, step: 0.01, shown: percent });
    this.length = el(
      "select",
      { id: "length", onchange: () => this.set({ k: Number(this.length.value) }) },
      LENGTHS.map((k) => el("option", { value: k }, String(k))),
    );
    this.reset = el("button", { type: "button", class: "reset", onclick: () => this.set({ penalty: 0, exposure: 0 }) }, "Reset sliders");
    return el(
      "div",
      { class: "controls" },
      this.penalty.root,
      this.exposure ? this.exposure.root : el("p", { class: "note" }, `${model.method} has no exposure model: it treats every item without a click as seen.`),
      el("div", { class: "below" }, el("p", {}, el("label", { for: "length" }, "Length "), this.length), this.reset),
    );
  }

  slider(name, label, words, { max, step, shown }) {
    const output = el("output", { for: name });
    const input = el("input", { type: "range", id: name, min: 0, max, step, "aria-describedby": `${name}-words` });
    const show = (value) => {
      if (value > Number(input.max)) input.max = value; // of an address made for another model
      input.value = value;
      output.textContent = shown(value);
      input.setAttribute("aria-valuetext", shown(value));
    };
    input.addEventListener("input", () => {
      show(Number(input.value));
      this.set({ [name]: Number(input.value) }, { sliding: true });
    });
    const root = el(
      "div",
      { class: "control" },
      el("div", { class: "line" }, el("label", { for: name }, label), output),
      input,
      el("p", { class: "note", id: `${name}-words` }, words),
    );
    return { root, show };
  }

  set(part, how = {}) {
    current = { ...current, ...part };
    change(current, how);
    this.adopt();
    if (how.sliding) this.soon();
    else this.refresh();
  }

  // Show the settings of the address in the controls.
  adopt() {
    this.penalty.show(current.penalty);
    if (this.exposure) this.exposure.show(current.exposure);
    this.length.value = current.k;
    this.reset.disabled = !current.penalty && !current.exposure;
  }

  forget() {
    this.untouched = null;
  }

  refresh() {
    this.adopt();
    const from = places(this.list);
    return fill(this.list, () => this.made()).then(() => glide(from, this.list));
  }

  async made() {
    const signal = newest("list");
    const { penalty, exposure, k } = current;
    const touched = penalty > 0 || (exposure > 0 && model.has_exposure);
    this.untouched ??= remember(await this.fetchList({}, Math.min(KNOWN_RANKS, model.items), signal));
    let entries = this.untouched.slice(0, k);
    if (touched) {
      const rules = { popularity_penalty: penalty, minimum_exposure: model.has_exposure ? exposure : 0 };
      entries = remember(await this.fetchList(rules, Math.min(k, model.items), signal));
    }
    this.shown(entries);
    return touched ? this.compared(entries, k) : this.plain(entries);
  }

  plain(entries) {
    say(`${counted(entries.length, "recommended item")}.`);
    if (!entries.length) return empty("There is nothing left to recommend.");
    return listTable("Recommended items", entries, { user: this.user });
  }

  compared(entries, k) {
    const before = new Map(this.untouched.map((entry) => [textOf(entry.item), entry.rank]));
    const now = new Set(entries.map((entry) => textOf(entry.item)));
    const lost = this.untouched.slice(0, k).filter((entry) => !now.has(textOf(entry.item)));
    const moves = entries.map((entry) => moved(entry.rank, before.get(textOf(entry.item)), k));
    const words = summary(moves, lost.length);
    say(words);
    if (!entries.length) return empty("No item passes these sliders. Lower the minimum exposure to get a list again.");
    return [
      el("p", { class: "note summary" }, words),
      listTable("Recommended items, with where they were before the sliders moved", entries, { moves, user: this.user }),
      lost.length > 0 &&
        el(
          "p",
          { class: "left" },
          "Left the list: ",
          lost.flatMap((entry, n) => [
            n ? ", " : "",
            el("a", { href: itemAddress(entry.item, this.user) }, nameOf(entry)),
            ` (was ${entry.rank})`,
          ]),
          ".",
        ),
    ].filter(Boolean);
  }
}

// Relevance beside exposure: each item a dot.
function chart(clicked, listed) {
  const [width, height, left, bottom, top, right] = [440, 250, 38, 34, 10, 10];
  const x = (share) => left + share * (width - left - right);
  const y = (share) => height - bottom - share * (height - bottom - top);
  const dot = (entry, kind, radius) =>
    drawn("circle", { class: kind, cx: x(entry.exposure), cy: y(entry.relevance), r: radius }, drawn("title", {}, `${nameOf(entry)}: relevance ${percent(entry.relevance)}, exposure ${percent(entry.exposure)}`));
  const ticks = [0, 0.5, 1].flatMap((share) => [
    drawn("line", { class: "grid", x1: left, x2: width - right, y1: y(share), y2: y(share) }),
    drawn("text", { x: left - 6, y: y(share) + 4, "text-anchor": "end" }, `${share * 100} %`),
    drawn("text", { x: x(share), y: height - bottom + 16, "text-anchor": share === 1 ? "end" : share ? "middle" : "start" }, `${share * 100} %`),
  ]);
  const words = `${counted(clicked.length, "clicked item")} and ${counted(listed.length, "recommended item")} by exposure, left to right, and relevance, upwards`;
  return el(
    "figure",
    { class: "map" },
    drawn(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words },
      ...ticks,
      drawn("text", { x: width - right, y: height - 2, "text-anchor": "end" }, "exposure →"),
      drawn("text", { x: left + 6, y: top + 12 }, "↑ relevance"),
      ...clicked.map((entry) => dot(entry, "clicked", 3.6)),
      ...listed.map((entry) => dot(entry, "listed", 4.6)),
    ),
    el("figcaption", {}, el("span", { class: "dot hollow" }), " clicked  ", el("span", { class: "dot" }), " recommended. Upper left: would be liked, but was hardly shown."),
  );
}

// ---- search

// A combobox with a list of users and items (ARIA 1.2, list autocomplete).
class Finder {
  constructor(root, { kinds, choose }) {
    Object.assign(this, { kinds, choose, options: [], active: -1, waits: false, chooseFirst: false });
    this.input = root.querySelector("input");
    this.name = this.input.id;
    this.box = el("div", { class: "found", role: "listbox", id: `${this.name}-found`, "aria-label": "Found", hidden: true });
    root.append(this.box);
    const roles = { role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": this.box.id };
    for (const [name, value] of Object.entries(roles)) this.input.setAttribute(name, value);
    this.soon = later(() => this.look());
    this.input.addEventListener("input", () => {
      this.waits = true;
      this.soon();
    });
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.input.addEventListener("blur", () => this.close());
    this.box.addEventListener("mousedown", (event) => event.preventDefault()); // the input keeps the focus
  }

  get open() {
    return !this.box.hidden;
  }

  async look() {
    const q = this.input.value.trim();
    const signal = newest(this.name);
    this.waits = true;
    try {
      const limit = this.kinds.length > 1 ? 6 : 10;
      const answers = await Promise.all(this.kinds.map((kind) => ask("search", { query: { q, kind, limit }, signal })));
      this.waits = false;
      this.show(q, answers);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.waits = false;
      this.tell(error.message);
    }
  }

  show(q, answers) {
    const groups = this.kinds.map((kind, n) => {
      const entries = answers[n][`${kind}s`].map((entry) => ({ ...entry, kind }));
      if (kind === "item") remember(entries);
      const isExact = (entry) => textOf(entry[kind]) === q;
      return [...entries.filter(isExact), ...entries.filter((entry) => !isExact(entry))];
    });
    this.options = groups.flat();
    if (!this.options.length) return this.tell(`Nothing here has “${q}” in its title, or an id that begins with it.`);
    let number = 0;
    this.box.replaceChildren(
      ...groups
        .filter((entries) => entries.length)
        .map((entries) => {
          const kind = entries[0].kind;
          const label = `${this.name}-${kind}`;
          return el(
            "div",
            { role: "group", "aria-labelledby": label },
            el("div", { class: "kind", id: label, role: "presentation" }, kind === "item" ? "Items" : "Users"),
            entries.map((entry) => this.option(entry, number++)),
          );
        }),
    );
    this.expand(true);
    this.activate(q ? 0 : -1);
    say(`${counted(this.options.length, "result")}.`);
    if (this.chooseFirst) this.pick(0);
  }

  option(entry, number) {
    const isItem = entry.kind === "item";
    const name = isItem ? nameOf(entry) : `User ${textOf(entry.user)}`;
    const id = isItem && entry.title != null ? `${textOf(entry.item)} · ` : "";
    return el(
      "div",
      { role: "option", id: `${this.name}-option-${number}`, "aria-selected": "false", onclick: () => this.pick(number) },
      el("span", {}, name),
      el("small", {}, id, counted(entry.clicks, "click")),
    );
  }

  tell(words) {
    this.options = [];
    this.chooseFirst = false;
    this.box.replaceChildren(el("p", { class: "none" }, words));
    this.expand(true);
    this.activate(-1);
    say(words);
  }

  expand(open) {
    this.box.hidden = !open;
    this.input.setAttribute("aria-expanded", String(open));
  }

  close() {
    newest(this.name); // a late answer must not open the list again
    this.chooseFirst = this.waits = false;
    this.expand(false);
    this.activate(-1);
  }

  activate(number) {
    this.active = number;
    for (const [n, option] of this.box.querySelectorAll('[role="option"]').entries()) {
      option.setAttribute("aria-selected", String(n === number));
      if (n === number) option.scrollIntoView({ block: "nearest" });
    }
    if (number < 0) this.input.removeAttribute("aria-activedescendant");
    else this.input.setAttribute("aria-activedescendant", `${this.name}-option-${number}`);
  }

  pick(number) {
    const entry = this.options[number];
    this.input.value = "";
    this.close();
    this.choose(entry);
  }

  key(event) {
    if (event.isComposing) return;
    const n = this.options.length;
    const down = event.key === "ArrowDown";
    if (down || event.key === "ArrowUp") {
      event.preventDefault();
      if (!this.open) this.look();
      else if (n) this.activate(down ? (this.active + 1) % n : (Math.max(this.active, 0) + n - 1) % n);
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (this.waits && this.input.value.trim()) this.chooseFirst = true;
      else if (this.open && this.active >= 0) this.pick(this.active);
    } else if (event.key === "Escape") {
      if (this.open) event.preventDefault();
      else this.input.value = "";
      this.close();
    }
  }
}

// ---- views

let current = readAddress();
let shownRanking = null; // of the view on show

const heading = (title, words, ...actions) =>
  el(
    "div",
    { class: "heading" },
    el("div", {}, el("h1", { tabindex: "-1" }, title), words && el("p", {}, words)),
    actions.length > 0 && el("div", { class: "actions" }, actions),
  );

function card(title, ...children) {
  return el("section", { class: "card", "aria-label": title }, el("h2", {}, title), children);
}

// A title for an item that may not have been met yet.
async function about(id, signal) {
  const known = seen.get(id);
  if (known) return known;
  const { items } = await ask("search", { query: { q: id, kind: "item", limit: 100 }, signal });
  remember(items);
  return seen.get(id) ?? null;
}

async function startView(signal) {
  const many = (kind) => ask("search", { query: { q: "", kind, limit: 8 }, signal });
  const [{ users }, { items }] = await Promise.all([many("user"), many("item")]);
  remember(items);
  const rows = (entries, cell) =>
    entries.map((entry) => el("tr", {}, cell(entry), el("td", { class: "plain-number" }, entry.clicks.toLocaleString("en-US"))));
  const link = (href, name) => el("td", { class: "item" }, el("a", { href }, name));
  return [
    heading("What does the model recommend?", null),
    el(
      "p",
      {},
      "Find a user to see what they clicked and what the model would show them. Find an item to see what resembles it. Or ",
      el("a", { href: "#/imagined" }, "imagine a user"),
      " from a few clicks.",
    ),
    el("p", { class: "meaning" }, meaning()),
    el(
      "div",
      { class: "columns halves" },
      card("Most clicked items", table("Most clicked items", heads(["Item"], ["Clicks", "plain-number"]), rows(items, (entry) => link(itemAddress(entry.item), nameOf(entry))))),
      card("Users with the most clicks", table("Users with the most clicks", heads(["User"], ["Clicks", "plain-number"]), rows(users, (entry) => link(userAddress(entry.user), `User ${textOf(entry.user)}`)))),
    ),
  ];
}

function meaning() {
  const liked = chances()
    ? "Relevance is the chance that a user would like an item, under this model"
    : `The scores of ${model.method} only order items: they are not probabilities`;
  const shown = model.has_exposure ? "; exposure is the chance that the user was shown it" : "";
  return `${liked}${shown}.`;
}

function clickedCard({ user, n_clicks: total, clicks }, title) {
  const sorted = chances() ? clicks.toSorted((one, other) => other.relevance - one.relevance) : clicks;
  const row = (entry) =>
    el("tr", {}, itemCell(entry, textOf(user)), chances() && shareCell(entry.relevance, "liked"), model.has_exposure && shareCell(entry.exposure, "seen"));
  const body = el("tbody", {}, sorted.slice(0, FEW).map(row));
  const head = heads(["Item", "item"], chances() ? ["Relevance", "share"] : [null], model.has_exposure ? ["Exposure", "share"] : [null]);
  const more =
    sorted.length > FEW &&
    el("button", { type: "button", class: "more", onclick: (event) => {
      const rows = sorted.slice(FEW).map(row);
      body.append(...rows);
      event.target.remove();
      rows[0].querySelector("a").focus();
    } }, `Show all ${sorted.length.toLocaleString("en-US")}`);
  const part = clicks.length < total ? `The first ${clicks.length.toLocaleString("en-US")} of ${total.toLocaleString("en-US")} clicks. ` : "";
  return card(
    title,
    el("p", { class: "note" }, `${part}${chances() ? "Most relevant first." : ""}`),
    el("table", {}, el("caption", { class: "unseen" }, title), head, body),
    more,
  );
}

async function userView(signal) {
  const user = current.id;
  const found = await ask("user", { query: { user }, signal });
  remember(found.clicks);
  const drawing = el("div");
  const map = model.has_exposure && chances() && card("Relevance beside exposure", drawing);
  const fetchList = async (rules, k, signal) => (await ask("recommend", { query: { user, k, ...rules }, signal })).items;
  shownRanking = new Ranking("Recommended", fetchList, { user, shown: (entries) => map && drawing.replaceChildren(chart(found.clicks, entries)) });
  shownRanking.refresh();
  const imagine = model.folds_in && found.clicks.length > 0 &&
    el("a", { class: "button", href: addressOf({ view: "imagined", clicks: found.clicks.slice(0, MOST_IMAGINED).map((entry) => entry.item) }) }, "Imagine someone with these clicks");
  return [
    heading(`User ${textOf(found.user)}`, `${counted(found.n_clicks, "clicked item")}. ${meaning()}`, imagine || []),
    el("div", { class: "columns" }, shownRanking.root, el("div", { class: "stack" }, map, found.clicks.length ? clickedCard(found, "Clicked") : card("Clicked", empty("This user has no clicks.")))),
  ].flat();
}

function similarTable(items) {
  const rows = items.map((entry) => el("tr", {}, itemCell(entry, current.user), el("td", { class: "plain-number" }, entry.similarity.toFixed(2))));
  return table("Similar items", heads(["Item", "item"], ["Similarity", "plain-number"]), rows);
}

async function itemView(signal) {
  const { id, user } = current;
  const [item, resembling] = await Promise.all([
    about(id, signal),
    ask("similar", { query: { item: id, k: Math.min(10, model.items - 1) }, signal }).catch((error) => {
      if (error instanceof Refusal) return error;
      throw error;
    }),
  ]);
  const refused = resembling instanceof Refusal;
  if (refused && !item) throw resembling;
  const known = item ?? { item: resembling.item, title: null };
  const clicks = known.clicks == null ? "" : `, clicked by ${known.clicks.toLocaleString("en-US")} of ${counted(model.users, "user")}`;
  const similar = card("Similar items", el("p", { class: "note" }, "Items whose vectors point the same way: 1 is the same direction, 0 unrelated."));
  similar.append(refused ? empty(sentence(resembling.message)) : similarTable(remember(resembling.items)));
  const list = el("div");
  const alone = model.folds_in && card("For someone who clicked only this", el("p", { class: "note" }, "The list that the model learns for such a user (fold-in)."), list);
  if (alone) {
    fill(list, async () => {
      const { items } = await ask("fold-in", { body: { clicks: [known.item], k: Math.min(10, model.items) }, signal });
      return listTable("Recommended items", remember(items));
    });
  }
  const forUser = user != null && model.has_exposure && chances() && el("div");
  if (forUser) fill(forUser, () => pairCard(known, user, signal));
  const imagine = model.folds_in && el("a", { class: "button", href: addressOf({ view: "imagined", clicks: [known.item] }) }, "Imagine a user who clicked it");
  const back = user != null && el("a", { class: "button", href: addressOf({ view: "user", id: user }) }, `Back to user ${user}`);
  return [
    heading(nameOf(known), `Item ${textOf(known.item)}${clicks}.`, back || [], imagine || []),
    el("div", { class: "columns" }, similar, el("div", { class: "stack" }, forUser, alone)),
  ];
}

// What the model says of one user and one item.
async function pairCard(known, user, signal) {
  const { items } = await ask("exposure", { query: { user, item: textOf(known.item) }, signal });
  const [pair] = items;
  const head = heads(["Clicked it", "item"], ["Relevance", "share"], ["Exposure", "share"]);
  const cells = [shareCell(pair.relevance, "liked"), shareCell(pair.exposure, "seen")];
  const row = el("tr", {}, el("td", { class: "item" }, pair.clicked ? "yes" : "no"), cells);
  return card(`For user ${user}`, table(`For user ${user}`, head, [row]));
}

async function imaginedView(signal) {
  if (!model.folds_in) {
    return [heading("An imagined user", null), empty(`${model.method} cannot learn new users, so there is nothing to imagine here.`)];
  }
  const root = el("div", { class: "finder", id: "adder" }, el("label", { for: "add" }, "Add an item they clicked"), el("input", { id: "add", type: "text", autocomplete: "off", spellcheck: "false", placeholder: "Title or id" }));
  const chosen = el("ul", { class: "chosen" });
  const hint = el("div");
  const clear = el("button", { type: "button", onclick: () => click([]) }, "Start over");
  const fetchList = async (rules, k, signal) => {
    const { items, unknown_items: unknown } = await ask("fold-in", { body: { clicks: current.clicks, k, ...rules }, signal });
    unread = unknown;
    return items;
  };
  let unread = [];
  const ranking = new Ranking("Recommended to them", fetchList, { shown: () => mark() });
  const mark = () => {
    for (const row of chosen.children) row.querySelector("small").textContent = unread.some((id) => textOf(id) === row.dataset.item) ? "unknown to the model: ignored" : row.dataset.words;
  };
  const click = (clicks) => {
    current = { ...current, clicks };
    change(current);
    ranking.forget();
    redraw();
  };
  const redraw = async () => {
    document.title = titleOf(current);
    ranking.root.hidden = current.clicks.length === 0;
    const entries = current.clicks.map((id) => seen.get(textOf(id)) ?? { item: id, title: null });
    chosen.replaceChildren(
      ...entries.map((entry) => {
        const words = [entry.title == null ? null : textOf(entry.item), entry.clicks == null ? null : counted(entry.clicks, "click")].filter(Boolean).join(" · ");
        const row = el(
          "li",
          {},
          el("span", { class: "item" }, el("a", { href: itemAddress(entry.item) }, nameOf(entry)), el("small", {}, words)),
          el("button", { type: "button", "aria-label": `Remove ${nameOf(entry)}`, onclick: () => {
            click(current.clicks.filter((id) => !same(id, entry.item)));
            at("add").focus();
          } }, "✕"),
        );
        row.dataset.item = textOf(entry.item);
        row.dataset.words = words;
        return row;
      }),
    );
    suggest();
    if (current.clicks.length) ranking.refresh();
    else ranking.list.replaceChildren();
  };
  const { items: popular } = await ask("search", { query: { q: "", kind: "item", limit: 20 }, signal });
  remember(popular);
  const suggest = () => {
    clear.disabled = !current.clicks.length;
    if (current.clicks.length) return hint.replaceChildren();
    const left = popular.filter((entry) => !current.clicks.some((id) => same(id, entry.item))).slice(0, 6);
    hint.replaceChildren(
      el("p", { class: "note" }, "Nothing clicked yet. Type a title above, or begin with something often clicked:"),
      el("ul", { class: "suggested" }, left.map((entry) => el("li", {}, el("button", { type: "button", onclick: () => add(entry) }, `+ ${nameOf(entry)}`)))),
    );
  };
  const add = (entry) => {
    if (current.clicks.some((id) => same(id, entry.item))) return say(`${nameOf(entry)} is there already.`);
    if (current.clicks.length >= MOST_IMAGINED) return say(`An imagined user has at most ${MOST_IMAGINED} clicks here.`);
    click([...current.clicks, entry.item]);
    at("add").focus();
  };
  await Promise.all(current.clicks.map((id) => about(textOf(id), signal)));
  const clicks = card("Their clicks", root, chosen, hint);
  shownRanking = ranking;
  ranking.takeOver = () => {
    ranking.forget();
    redraw();
  };
  redraw();
  new Finder(root, { kinds: ["item"], choose: add });
  return [
    heading("An imagined user", `Put in what somebody clicked: the model learns this user from the clicks alone, and itself stays as it is. ${meaning()}`, clear),
    el("div", { class: "columns" }, clicks, ranking.root),
  ];
}

const VIEWS = { start: startView, user: userView, item: itemView, imagined: imaginedView };

function titleOf({ view, id, clicks }) {
  const names = {
    start: null,
    user: `User ${id}`,
    item: seen.get(id)?.title ?? `Item ${id}`,
    imagined: clicks.length ? `An imagined user, ${counted(clicks.length, "click")}` : "An imagined user",
  };
  return [names[view], "unexposed"].filter(Boolean).join(" · ");
}

const subject = ({ view, id, user }) => toJson([view, id, view === "item" ? user : null]);
let onShow = null; // subject of the view on show

async function show({ focus = false, again = false } = {}) {
  if (!model) return;
  if (!again && subject(current) === onShow && shownRanking) {
    if (shownRanking.takeOver) shownRanking.takeOver();
    else shownRanking.refresh();
    return;
  }
  dropAll();
  onShow = subject(current);
  shownRanking = null;
  const main = at("main");
  if (!again) main.replaceChildren();
  for (const link of document.querySelectorAll("nav a[data-view]")) {
    if (link.dataset.view === current.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = titleOf(current);
  await fill(main, () => VIEWS[current.view](newest("view")));
  document.title = titleOf(current);
  if (focus) (main.querySelector("h1") ?? main).focus({ preventScroll: true });
}

function go(address) {
  if (address === location.hash) return;
  history.pushState(null, "", address);
  follow();
}

function follow() {
  lastSlide = 0;
  current = readAddress();
  if (subject(current) !== onShow) scrollTo(0, 0);
  at("notice").hidden = true;
  show({ focus: true });
}

// ---- start, and a model that was replaced

const models = new Set(); // seen so far: with several workers an older one may answer once more
const nameOfModel = ({ saved, generation }) => `${saved} ${generation}`;

function describe() {
  const date = model.saved && new Date(model.saved);
  const when = date && !Number.isNaN(date.valueOf()) ? ` · saved ${date.toLocaleDateString("en-GB", { day: "numeric", month: "long", year: "numeric" })}` : "";
  at("model").replaceChildren(
    el("b", {}, model.method),
    ` · ${counted(model.users, "user")} · ${counted(model.items, "item")} · ${counted(model.clicks, "click")}${when}`,
  );
  at("verdict").textContent = model.verdict ? sentence(model.verdict) : "";
  at("verdict").classList.toggle("warns", /^warning\b/i.test(model.verdict ?? ""));
  at("verdict").hidden = !model.verdict;
}

async function begin() {
  await fill(at("main"), async () => {
    ({ model } = await ask("health"));
    models.add(nameOfModel(model));
    describe();
    return [];
  });
  show();
}

async function checkModel() {
  if (document.hidden || !model) return;
  let found;
  try {
    found = (await ask("health")).model;
  } catch {
    return; // the next question of the reader says so
  }
  if (models.has(nameOfModel(found))) return;
  models.add(nameOfModel(found));
  model = found;
  seen.clear();
  describe();
  const time = new Date().toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  at("notice").textContent = `The model was replaced at ${time}. What you see is from the new one.`;
  at("notice").hidden = false;
  show({ again: true });
}

new Finder(at("finder"), {
  kinds: ["item", "user"],
  choose: (entry) => go(entry.kind === "user" ? userAddress(entry.user) : itemAddress(entry.item)),
});
addEventListener("popstate", follow); // also when a link changes the hash
addEventListener("focus", checkModel);
setInterval(checkModel, HEALTH_EVERY);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash is the state of the view
  at("main").focus();
});
addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, select, textarea");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  at("find").focus();
});
begin();
