// The view of an imagined user: clicks put in by the reader, and the list that follows.

import { ask, isDropped, newest } from "./asking.js";
import { at, button, card, el, empty, heading, say } from "./elements.js";
import { itemName } from "./lists.js";
import { Ranking } from "./ranking.js";
import { Finder } from "./search.js";
import { MOST_IMAGINED, change, meaning, page, recall, remember } from "./state.js";
import { nameOf, printed, same } from "./words.js";
import { itemOf } from "./views.js";

const SUGGESTED = 6;

export async function imaginedView(signal) {
  const title = "An imagined user";
  const { model } = page;
  if (!model.folds_in) return [heading(title), empty(`${model.method} cannot learn new users from their clicks.`)];
  const { items } = await ask("search", { query: { q: "", kind: "item", limit: SUGGESTED }, signal });
  const user = new Imagined(remember(items));
  page.ranking = user.ranking;
  await user.redraw(signal);
  const words =
    "Put in what somebody clicked: the model learns this user from the clicks alone, and itself stays as it is.";
  const clicks = card("Their clicks", user.adder, user.chosen, user.hint);
  return [
    heading(title, `${words} ${meaning()}`, user.clear),
    el("div", { class: "columns turned" }, clicks, user.ranking.root),
  ];
}

class Imagined {
  constructor(popular) {
    this.popular = popular;
    this.unknown = [];
    const bare = { autocomplete: "off", spellcheck: "false", maxlength: 200 };
    const input = el("input", { id: "add", type: "text", placeholder: "Title or id", ...bare });
    this.adder = el("div", { class: "finder" }, el("label", { for: "add" }, "Add an item they clicked"), input);
    this.chosen = el("ul", { class: "chosen" });
    this.hint = el("div");
    this.clear = button("Start over", () => this.click([]));
    new Finder(this.adder, { kinds: ["item"], choose: (entry) => this.add(entry) });
    const fetchList = (rules, k, signal) => this.fetchList(rules, k, signal);
    const onShown = () => this.markUnknown();
    this.ranking = new Ranking("Recommended to them", fetchList, { onShown });
    this.ranking.follow = () => this.redraw(newest("view"));
  }

  async fetchList(rules, k, signal) {
    const answer = await ask("fold-in", { body: { clicks: page.view.clicks, k, ...rules }, signal });
    this.unknown = answer.unknown_items;
    return answer.items;
  }

  add(entry) {
    const { clicks } = page.view;
    if (clicks.some((id) => same(id, entry.item))) say(`${nameOf(entry)} is there already.`);
    else if (clicks.length >= MOST_IMAGINED) say(`There is room for ${MOST_IMAGINED} clicks here.`);
    else this.click([...clicks, entry.item]);
    at("add").focus();
  }

  click(clicks) {
    change({ clicks });
    this.redraw(newest("view"));
  }

  // Show the clicks of the address and the list that follows from them.
  async redraw(signal) {
    const { clicks } = page.view;
    try {
      await Promise.all(clicks.map((id) => itemOf(printed(id), signal)));
    } catch (error) {
      if (isDropped(error)) return; // newer clicks are drawn
      // without titles the ids are shown
    }
    const entries = clicks.map((id) => recall(printed(id)) ?? { item: id, title: null });
    this.chosen.replaceChildren(...entries.map((entry) => this.row(entry)));
    this.hint.replaceChildren(...(clicks.length ? [] : this.suggestions()));
    this.clear.disabled = this.ranking.root.hidden = !clicks.length;
    this.ranking.forget();
    if (clicks.length) this.ranking.refresh();
  }

  row(entry) {
    const remove = () => {
      this.click(page.view.clicks.filter((id) => !same(id, entry.item)));
      at("add").focus();
    };
    const name = el("span", { class: "item" }, itemName(entry));
    const row = el("li", {}, name, button("✕", remove, { "aria-label": `Remove ${nameOf(entry)}` }));
    row.dataset.item = printed(entry.item);
    return row;
  }

  markUnknown() {
    const unknown = new Set(this.unknown.map(printed));
    for (const row of this.chosen.children) {
      if (unknown.has(row.dataset.item)) row.querySelector("small").textContent = "not in the model: ignored";
    }
  }

  suggestions() {
    const buttons = this.popular.map((entry) => el("li", {}, button(`+ ${nameOf(entry)}`, () => this.add(entry))));
    return [
      el("p", { class: "note" }, "Nothing clicked yet. Type a title above, or begin with something often clicked:"),
      el("ul", { class: "suggested" }, buttons),
    ];
  }
}
