// Search for users and items: a combobox with a list (ARIA 1.2, list autocomplete).

import { ask, drop, isDropped, later, newest } from "./asking.js";
import { el, say } from "./elements.js";
import { remember } from "./state.js";
import { counted, nameOf, printed, sentence } from "./words.js";

const FOUND = { 1: 10, 2: 6 }; // shown of each kind, by the number of kinds
const HEADS = { item: "Items", user: "Users" };

export class Finder {
  // `root` holds a label and an input; `choose` gets the entry that was picked.
  constructor(root, { kinds, choose }) {
    Object.assign(this, { kinds, choose, options: [], active: -1 });
    this.isWaiting = false; // for results of what was typed
    this.takesFirst = false; // Enter was pressed before they came
    this.input = root.querySelector("input");
    this.name = this.input.id;
    this.list = el("div", { role: "listbox", id: `${this.name}-found`, "aria-label": "Found" });
    this.words = el("p", { class: "none", hidden: true });
    this.box = el("div", { class: "found", hidden: true }, this.list, this.words);
    root.append(this.box);
    const roles = {
      role: "combobox",
      "aria-autocomplete": "list",
      "aria-expanded": "false",
      "aria-controls": this.list.id,
    };
    for (const [name, value] of Object.entries(roles)) this.input.setAttribute(name, value);
    this.soon = later(() => this.look());
    this.input.addEventListener("input", () => {
      this.isWaiting = true;
      this.soon();
    });
    this.input.addEventListener("keydown", (event) => this.press(event));
    this.input.addEventListener("blur", () => this.close());
    this.box.addEventListener("mousedown", (event) => event.preventDefault()); // keep the focus
  }

  async look() {
    const q = this.input.value.trim();
    const limit = FOUND[this.kinds.length];
    const signal = newest(this.name);
    this.isWaiting = true;
    try {
      const questions = this.kinds.map((kind) => ask("search", { query: { q, kind, limit }, signal }));
      const answers = await Promise.all(questions);
      this.isWaiting = false;
      this.show(q, answers.map((answer, n) => ordered(answer, this.kinds[n], q)));
    } catch (error) {
      if (isDropped(error)) return;
      this.isWaiting = false;
      this.tell(sentence(error.message));
    }
  }

  show(q, groups) {
    this.options = groups.flat();
    if (!this.options.length) return this.tell(`Nothing has “${q}” in its title or at the start of its id.`);
    let place = 0;
    const found = groups.filter((entries) => entries.length).map((entries) => {
      const label = `${this.name}-${entries[0].kind}`;
      const head = el("div", { class: "kind", id: label, role: "presentation" }, HEADS[entries[0].kind]);
      const options = entries.map((entry) => this.option(entry, place++));
      return el("div", { role: "group", "aria-labelledby": label }, head, options);
    });
    this.list.replaceChildren(...found);
    this.open({ withOptions: true });
    this.activate(q ? 0 : -1);
    say(`${counted(this.options.length, "result")}.`);
    if (this.takesFirst) this.pick(0);
  }

  option(entry, place) {
    const isItem = entry.kind === "item";
    const name = isItem ? nameOf(entry) : `User ${printed(entry.user)}`;
    const id = isItem && entry.title != null ? `${printed(entry.item)} · ` : "";
    return el(
      "div",
      {
        role: "option",
        id: `${this.name}-option-${place}`,
        "aria-selected": "false",
        onclick: () => this.pick(place),
      },
      el("span", {}, name),
      el("small", {}, id, counted(entry.clicks, "click")),
    );
  }

  tell(words) {
    this.options = [];
    this.takesFirst = false;
    this.list.replaceChildren();
    this.words.textContent = words;
    this.open({ withOptions: false });
    this.activate(-1);
    say(words);
  }

  open({ withOptions }) {
    this.box.hidden = false;
    this.words.hidden = withOptions;
    this.input.setAttribute("aria-expanded", String(withOptions));
  }

  close() {
    drop(this.name); // a late answer must not open the list again
    this.soon.cancel();
    this.isWaiting = this.takesFirst = false;
    this.box.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.activate(-1);
  }

  activate(place) {
    this.active = place;
    for (const [n, option] of this.list.querySelectorAll('[role="option"]').entries()) {
      option.setAttribute("aria-selected", String(n === place));
      if (n === place) option.scrollIntoView({ block: "nearest" });
    }
    if (place < 0) this.input.removeAttribute("aria-activedescendant");
    else this.input.setAttribute("aria-activedescendant", `${this.name}-option-${place}`);
  }

  pick(place) {
    this.input.value = "";
    this.close();
    this.choose(this.options[place]);
  }

  press(event) {
    if (event.isComposing) return;
    const isOpen = !this.box.hidden;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (isOpen) this.step(event.key === "ArrowDown" ? 1 : -1);
      else this.look();
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (this.isWaiting && this.input.value.trim()) this.takesFirst = true;
      else if (isOpen && this.active >= 0) this.pick(this.active);
    } else if (event.key === "Escape") {
      if (!isOpen) this.input.value = "";
      this.close();
    }
  }

  step(way) {
    const n = this.options.length;
    if (!n) return;
    const from = this.active < 0 && way < 0 ? 0 : this.active;
    this.activate((from + way + n) % n);
  }
}

// The entries of an answer, the one with exactly this id first.
function ordered(answer, kind, q) {
  const entries = answer[`${kind}s`].map((entry) => ({ ...entry, kind }));
  if (kind === "item") remember(entries);
  const isExact = (entry) => printed(entry[kind]) === q;
  return [...entries.filter(isExact), ...entries.filter((entry) => !isExact(entry))];
}
