// The page of `unexposed serve`: starts it, follows the address, notices a replaced model.

import { ask, drop, newest } from "./asking.js";
import { at, el, failed, fill } from "./elements.js";
import { imaginedView } from "./imagined.js";
import { Finder } from "./search.js";
import { forgetItems, itemAddress, page, readAddress, recall, userAddress } from "./state.js";
import { counted, sentence } from "./words.js";
import { itemView, startView, userView } from "./views.js";

const HEALTH_EVERY = 10_000; // ms
const VIEWS = { start: startView, user: userView, item: itemView, imagined: imaginedView };

let subject = null; // what the view on show is about
const subjectOf = ({ view, id, user }) => JSON.stringify([view, id, view === "item" && user]);

function titleOf({ view, id }) {
  const item = recall(id)?.title ?? `Item ${id}`;
  const name = { user: `User ${id}`, item, imagined: "An imagined user" }[view];
  return name ? `${name} · unexposed` : "unexposed";
}

// Show the view of the address; `again` after the model was replaced.
async function show({ again = false } = {}) {
  if (!again && subjectOf(page.view) === subject && page.ranking) {
    if (page.ranking.follow) page.ranking.follow();
    else page.ranking.refresh();
    return;
  }
  drop("view", "list");
  subject = subjectOf(page.view);
  page.ranking = null;
  for (const link of document.querySelectorAll("a[data-view]")) {
    if (link.dataset.view === page.view.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const main = at("main");
  const focused = main.contains(document.activeElement) && document.activeElement.id;
  if (!again) main.replaceChildren();
  document.title = titleOf(page.view);
  await fill(main, () => VIEWS[page.view.view](newest("view")), "There is nothing to show here");
  document.title = titleOf(page.view);
  if (again && focused) at(focused)?.focus();
}

// A link fires popstate, hashchange or both.
async function follow() {
  if (location.hash === page.hash || !page.model) return;
  page.hash = location.hash;
  page.view = readAddress();
  at("notice").hidden = true;
  const isNew = subjectOf(page.view) !== subject;
  await show();
  if (!isNew || location.hash !== page.hash) return;
  scrollTo(0, 0);
  at("main").querySelector("h1")?.focus({ preventScroll: true }); // so that it is read out
}

function describe({ method, users, items, clicks, saved, verdict }) {
  const date = new Date(saved ?? NaN);
  const day = { day: "numeric", month: "long", year: "numeric" };
  const facts = [counted(users, "user"), counted(items, "item"), counted(clicks, "click")];
  if (!Number.isNaN(date.valueOf())) facts.push(`saved ${date.toLocaleDateString("en-GB", day)}`);
  at("model").replaceChildren(el("b", {}, method), ...facts.flatMap((fact) => [" · ", el("span", {}, fact)]));
  const [first, ...rest] = (verdict ?? "").split("; ");
  const more =
    rest.length > 0 &&
    el("details", {}, el("summary", {}, sentence(first)), sentence(rest.join("; ")));
  at("verdict").replaceChildren(more || sentence(first));
  at("verdict").classList.toggle("warns", /^warning\b/i.test(first));
  at("verdict").hidden = !verdict;
}

const models = new Set(); // seen so far: with several workers an older one may answer once more
const nameOfModel = ({ saved }) => saved;

function take(model) {
  page.model = model;
  models.add(nameOfModel(model));
  describe(model);
}

async function begin() {
  try {
    take((await ask("health")).model);
  } catch (error) {
    at("main").replaceChildren(failed(error, begin, "The model is not there"));
    return;
  }
  page.view = readAddress();
  page.hash = location.hash;
  show();
}

async function lookForNewModel() {
  if (document.hidden || !page.model) return;
  let model;
  try {
    ({ model } = await ask("health"));
  } catch {
    return; // the reader's next question says so
  }
  if (models.has(nameOfModel(model))) return;
  take(model);
  forgetItems();
  const time = new Date().toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  at("notice").textContent = `The model was replaced at ${time}. This view shows the new one.`;
  at("notice").hidden = false;
  show({ again: true });
}

new Finder(at("finder"), {
  kinds: ["item", "user"],
  choose: (entry) => {
    location.hash = entry.kind === "user" ? userAddress(entry.user) : itemAddress(entry.item);
  },
});
addEventListener("popstate", follow);
addEventListener("hashchange", follow);
addEventListener("focus", lookForNewModel);
setInterval(lookForNewModel, HEALTH_EVERY);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash is the state of the view
  at("main").focus();
});
addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input, select");
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  at("find").focus();
});
begin();
