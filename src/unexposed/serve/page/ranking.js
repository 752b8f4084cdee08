// A recommended list with sliders for popularity penalty and minimum exposure.

import { later, newest } from "./asking.js";
import { button, el, empty, fill, say } from "./elements.js";
import { glide, listTable, moveOf, placesOf } from "./lists.js";
import { LENGTHS, change, itemAddress, page, remember } from "./state.js";
import { counted, nameOf, percent, printed } from "./words.js";

const KNOWN_RANKS = 200; // of the untouched list, for telling where an item came from
const GREATEST_PENALTY = { logit: 2, probability: 0.25, order: 1 }; // right end of the slider
const STEPS = 40; // of that slider

export class Ranking {
  // `fetchList(rules, k, signal)` asks the server; `onShown` gets the entries on show.
  constructor(title, fetchList, { user = null, onShown = () => {} } = {}) {
    Object.assign(this, { fetchList, user, onShown, untouched: null });
    this.list = el("div", { class: "list" });
    const parts = [el("h2", {}, title), this.controls(), this.list];
    this.root = el("section", { class: "card ranking", "aria-label": title }, parts);
    this.soon = later(() => {
      if (page.ranking === this) this.refresh();
    });
  }

  controls() {
    const { model } = page;
    const greatest = GREATEST_PENALTY[model.scale];
    this.penalty = slider("penalty", "Popularity penalty", "Lowers items that many people clicked.", {
      max: greatest,
      step: greatest / STEPS,
      shown: (value) => String(Math.round(value * 1e4) / 1e4),
      slide: (value) => this.set({ penalty: value }, { sliding: true }),
    });
    this.exposure = slider("exposure", "Minimum exposure", "Keeps items that the user was probably shown.", {
      max: 1,
      step: 0.01,
      shown: percent,
      slide: (value) => this.set({ exposure: value }, { sliding: true }),
    });
    const without = `${model.method} has no exposure model: it treats what was not clicked as seen.`;
    const options = LENGTHS.map((k) => el("option", { value: k }, String(k)));
    this.length = el("select", { id: "length" }, options);
    this.length.addEventListener("change", () => this.set({ k: Number(this.length.value) }));
    this.reset = button("Reset sliders", () => this.set({ penalty: 0, exposure: 0 }), { class: "reset" });
    const length = el("p", {}, el("label", { for: "length" }, "Length "), this.length);
    return el(
      "div",
      { class: "controls" },
      this.penalty.root,
      model.has_exposure ? this.exposure.root : el("p", { class: "note" }, without),
      el("div", { class: "below" }, length, this.reset),
    );
  }

  set(part, how = {}) {
    change(part, how);
    this.adopt();
    if (how.sliding) this.soon();
    else this.refresh();
  }

  // Show the settings of the address in the controls.
  adopt() {
    const { penalty, exposure, k } = page.view;
    this.penalty.show(penalty);
    this.exposure.show(exposure);
    this.length.value = k;
    this.reset.disabled = !penalty && !exposure;
  }

  // Ask for the untouched list again, because the user of the list changed.
  forget() {
    this.untouched = null;
  }

  async refresh() {
    this.adopt();
    const before = placesOf(this.list);
    await fill(this.list, () => this.content());
    glide(before, this.list);
  }

  async content() {
    const { penalty, exposure, k } = page.view;
    const { model } = page;
    const signal = newest("list");
    const rules = { popularity_penalty: penalty, minimum_exposure: model.has_exposure ? exposure : 0 };
    const isTouched = Object.values(rules).some((value) => value > 0);
    const [untouched, touched] = await Promise.all([
      this.untouched ?? this.fetchList({}, KNOWN_RANKS, signal),
      isTouched ? this.fetchList(rules, k, signal) : null,
    ]);
    if (!this.untouched) this.span(untouched);
    this.untouched = remember(untouched);
    const entries = remember(touched ?? untouched.slice(0, k));
    this.onShown(entries);
    return isTouched ? this.compared(entries, k) : this.plain(entries);
  }

  // Scores that only order items have no unit: let the slider span the scores of the list.
  span(untouched) {
    const scores = untouched.map((entry) => entry.score);
    const clicks = Math.log1p(Math.max(...untouched.map((entry) => entry.clicks)));
    const spread = (2 * (Math.max(...scores) - Math.min(...scores))) / clicks;
    if (page.model.scale !== "order" || !(spread > 0 && spread < Infinity)) return;
    const power = 10 ** Math.floor(Math.log10(spread));
    this.penalty.span(power * [1, 2, 5, 10].find((n) => n * power >= spread));
    this.adopt();
  }

  plain(entries) {
    say(`${counted(entries.length, "recommended item")}.`);
    if (!entries.length) return empty("There is nothing left to recommend.");
    return listTable("Recommended items", entries, { user: this.user });
  }

  compared(entries, k) {
    const before = new Map(this.untouched.map((entry) => [printed(entry.item), entry.rank]));
    const now = new Set(entries.map((entry) => printed(entry.item)));
    const left = this.untouched.slice(0, k).filter((entry) => !now.has(printed(entry.item)));
    const moves = entries.map((entry) => moveOf(entry.rank, before.get(printed(entry.item)), k));
    const words = summary(moves, left.length);
    say(words);
    if (!entries.length) {
      return empty("No item passes. Lower the minimum exposure to get a list again.");
    }
    return [
      el("p", { class: "note summary" }, words),
      listTable("Recommended items, and how the sliders moved them", entries, { moves, user: this.user }),
      left.length > 0 && this.gone(left),
    ];
  }

  gone(left) {
    const named = left.flatMap((entry, n) => {
      const link = el("a", { href: itemAddress(entry.item, this.user) }, nameOf(entry));
      return [n > 0 && ", ", link, ` (was ${entry.rank})`];
    });
    return el("p", { class: "left" }, "Left the list: ", named, ".");
  }
}

function summary(moves, left) {
  const ofKind = (kind) => moves.filter((move) => move.kind === kind).length;
  const [fresh, up, down] = ["new", "up", "down"].map(ofKind);
  if (!fresh && !up && !down && !left) return "The sliders change nothing in this list.";
  return `Against the untouched list: ${fresh} came in, ${left} left, ${up} went up, ${down} went down.`;
}

function slider(name, label, words, { max, step, shown, slide }) {
  const output = el("output", { for: name });
  const range = { type: "range", id: name, min: 0, max, step, "aria-describedby": `${name}-words` };
  const input = el("input", range);
  input.addEventListener("input", () => slide(Number(input.value)));
  const root = el(
    "div",
    { class: "control" },
    el("div", { class: "line" }, el("label", { for: name }, label), output),
    input,
    el("p", { class: "note", id: `${name}-words` }, words),
  );
  const show = (value) => {
    if (value > Number(input.max)) input.max = value; // an address may say more than the slider
    input.value = value;
    output.textContent = shown(value);
    input.setAttribute("aria-valuetext", shown(value));
  };
  const span = (greatest) => {
    input.max = greatest;
    input.step = greatest / STEPS;
  };
  return { root, show, span };
}
