// Elements of the page. Text from a log becomes text nodes, never markup.

import { Refusal, isDropped } from "./asking.js";
import { sentence } from "./words.js";

export const at = (id) => document.getElementById(id);

// Attributes named on… are listeners; children that are null or false are left out.
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child != null && child !== false));
  return made;
}

export function drawn(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export const button = (words, onclick, attributes = {}) =>
  el("button", { type: "button", onclick, ...attributes }, words);

export const linkButton = (href, words) => el("a", { class: "button", href }, words);

export const empty = (words) => el("p", { class: "state" }, words);

export function card(title, ...children) {
  return el("section", { class: "card", "aria-label": title }, el("h2", {}, title), ...children);
}

export function heading(title, words, ...actions) {
  const said = el("div", {}, el("h1", { tabindex: "-1" }, title), words && el("p", {}, words));
  const shown = actions.filter(Boolean);
  return el("div", { class: "heading" }, said, shown.length > 0 && el("div", { class: "actions" }, shown));
}

// For screen readers: what has just changed.
export function say(words) {
  at("said").textContent = words;
}

export function failed(error, again, title) {
  const words = error instanceof Refusal ? error.message : "something went wrong in this page";
  const hint = title && el("p", { class: "note" }, "Search above for a user or an item that is there.");
  return el(
    "div",
    { class: "failed", role: "alert" },
    title && el("h1", { tabindex: "-1" }, title),
    el("p", {}, sentence(words)),
    hint,
    button("Try again", again),
  );
}

// Fill a place with what `make` gives; say what happens meanwhile, and what went wrong.
export async function fill(place, make, title) {
  place.setAttribute("aria-busy", "true");
  if (!place.childElementCount) place.append(el("p", { class: "state waits" }, "Loading …"));
  try {
    const made = await make();
    place.replaceChildren(...[made].flat().filter(Boolean));
  } catch (error) {
    if (isDropped(error)) return; // a newer question fills the place
    if (!(error instanceof Refusal)) console.error(error);
    place.replaceChildren(failed(error, () => fill(place, make, title), title));
  }
  place.removeAttribute("aria-busy");
}
