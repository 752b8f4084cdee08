// The views of the start, of a user and of an item.

import { Refusal, ask } from "./asking.js";
import { chart } from "./chart.js";
import { button, card, el, empty, fill, heading, linkButton } from "./elements.js";
import { chanceCells, chanceHeads, itemCell, listTable, numberCell, table } from "./lists.js";
import { Ranking } from "./ranking.js";
import {
  MOST_IMAGINED,
  addressOf,
  hasChances,
  itemAddress,
  meaning,
  page,
  recall,
  remember,
  userAddress,
} from "./state.js";
import { counted, nameOf, number, printed, sentence } from "./words.js";

const LEAD =
  "Find a user to see what they clicked and what the model would show them, or an item to see what resembles it.";
const FEW = 12; // clicks shown before "Show all"
const LONGEST_SEARCH = 200; // characters

export async function startView(signal) {
  const most = (kind) => ask("search", { query: { q: "", kind, limit: 8 }, signal });
  const [{ items }, { users }] = await Promise.all([most("item"), most("user")]);
  remember(items);
  const row = (href, name, clicks) =>
    el("tr", {}, el("td", { class: "item" }, el("a", { href }, name)), numberCell(number(clicks)));
  const itemRows = items.map((entry) => row(itemAddress(entry.item), nameOf(entry), entry.clicks));
  const userRows = users.map(({ user, clicks }) => row(userAddress(user), `User ${printed(user)}`, clicks));
  const ranked = (title, head, rows) => card(title, table(title, [[head, "item"], ["Clicks", "figure"]], rows));
  const imagine = el("a", { href: addressOf({ view: "imagined" }) }, "imagine a user");
  return [
    heading("What does the model recommend?"),
    el("p", {}, `${LEAD} Or `, imagine, " from a few clicks."),
    el("p", { class: "meaning" }, meaning()),
    el(
      "div",
      { class: "columns halves" },
      ranked("Most clicked items", "Item", itemRows),
      ranked("Users with the most clicks", "User", userRows),
    ),
  ];
}

export async function userView(signal) {
  const user = page.view.id;
  const found = await ask("user", { query: { user }, signal });
  const { clicks } = found;
  remember(clicks);
  const drawing = el("div");
  const map = page.model.has_exposure && hasChances() && card("Relevance beside exposure", drawing);
  const fetchList = async (rules, k, latest) => {
    const answer = await ask("recommend", { query: { user, k, ...rules }, signal: latest });
    return answer.items;
  };
  const onShown = (entries) => map && drawing.replaceChildren(chart(clicks, entries));
  page.ranking = new Ranking("Recommended", fetchList, { user, onShown });
  page.ranking.refresh();
  const imagine =
    clicks.length > 0 &&
    imagineButton(clicks.slice(0, MOST_IMAGINED), "Imagine someone with these clicks");
  return [
    heading(`User ${printed(found.user)}`, `${counted(found.n_clicks, "clicked item")}. ${meaning()}`, imagine),
    el("div", { class: "columns" }, page.ranking.root, el("div", { class: "stack" }, map, clickedCard(found))),
  ];
}

function imagineButton(entries, words) {
  const clicks = entries.map((entry) => entry.item);
  return page.model.folds_in && linkButton(addressOf({ view: "imagined", clicks }), words);
}

function clickedCard({ user, n_clicks: total, clicks }) {
  if (!clicks.length) return card("Clicked", empty("This user has no clicks."));
  const entries = hasChances() ? [...clicks].sort((one, other) => other.relevance - one.relevance) : clicks;
  const rows = entries.map((entry) => el("tr", {}, itemCell(entry, printed(user)), chanceCells(entry)));
  const shown = table("Clicked items", [["Item", "item"], ...chanceHeads()], rows.slice(0, FEW));
  const more = button(`Show all ${number(rows.length)}`, () => {
    shown.tBodies[0].append(...rows.slice(FEW));
    more.remove();
    rows[FEW].querySelector("a").focus();
  }, { class: "more" });
  const part = clicks.length < total ? `${number(clicks.length)} of ${counted(total, "click")}. ` : "";
  const words = part + (hasChances() ? "Most relevant first." : "");
  return card("Clicked", words && el("p", { class: "note" }, words), shown, rows.length > FEW && more);
}

export async function itemView(signal) {
  const { id, user } = page.view;
  const [met, similar] = await Promise.all([itemOf(id, signal), similarTo(id, signal)]);
  if (!met && similar instanceof Refusal) throw similar;
  const item = met ?? { item: similar.item, title: null };
  const everybody = counted(page.model.users, "user");
  const clicks = item.clicks == null ? "" : `, clicked by ${number(item.clicks)} of ${everybody}`;
  const isPair = user != null && page.model.has_exposure;
  const pair = isPair && filled(() => pairCard(id, user, signal));
  const alone = page.model.folds_in && aloneCard(item, signal);
  return [
    heading(
      nameOf(item),
      `Item ${printed(item.item)}${clicks}. ${meaning()}`,
      user != null && linkButton(addressOf({ view: "user", id: user }), `Back to user ${user}`),
      imagineButton([item], "Imagine a user who clicked it"),
    ),
    el("div", { class: "columns turned" }, el("div", { class: "stack" }, pair, similarCard(similar, user)), alone),
  ];
}

// An item by its id: as met before, or found by a search.
export async function itemOf(id, signal) {
  if (!recall(id) && id.length <= LONGEST_SEARCH) {
    const { items } = await ask("search", { query: { q: id, kind: "item", limit: 100 }, signal });
    remember(items);
  }
  return recall(id);
}

async function similarTo(id, signal) {
  try {
    return await ask("similar", { query: { item: id, k: 10 }, signal });
  } catch (error) {
    if (error instanceof Refusal) return error; // some methods have no vectors to compare
    throw error;
  }
}

function similarCard(similar, user) {
  if (similar instanceof Refusal) return card("Similar items", empty(sentence(similar.message)));
  const rows = remember(similar.items).map((entry) =>
    el("tr", {}, itemCell(entry, user), numberCell(entry.similarity.toFixed(2))),
  );
  const words = "By the angle between what the model learned of them: 1 is the same direction, 0 unrelated.";
  return card(
    "Similar items",
    el("p", { class: "note" }, words),
    table("Similar items", [["Item", "item"], ["Similarity", "figure"]], rows),
  );
}

// What somebody would get who clicked nothing else.
function aloneCard(item, signal) {
  const list = filled(async () => {
    const { items } = await ask("fold-in", { body: { clicks: [item.item], k: 10 }, signal });
    if (!items.length) return empty("There is nothing left to recommend.");
    return listTable("Recommended items", remember(items));
  });
  const words = el("p", { class: "note" }, "The model learns such a user from this one click.");
  return card("For someone who clicked only this", words, list);
}

async function pairCard(item, user, signal) {
  const { items } = await ask("exposure", { query: { user, item }, signal });
  const [pair] = items;
  const answer = el("td", { class: "item" }, pair.clicked ? "yes" : "no");
  const row = el("tr", {}, answer, chanceCells(pair));
  const title = `For user ${user}`;
  return card(title, table(title, [["Clicked it", "item"], ...chanceHeads()], [row]));
}

function filled(make) {
  const place = el("div");
  fill(place, make);
  return place;
}
