// Tables of items: rank, name, relevance and exposure.

import { el } from "./elements.js";
import { hasChances, itemAddress, page } from "./state.js";
import { counted, nameOf, percent, printed } from "./words.js";

export function table(caption, heads, rows) {
  const cells = heads.map(([name, kind]) => el("th", { scope: "col", class: kind }, name));
  return el(
    "table",
    {},
    el("caption", { class: "unseen" }, caption),
    el("thead", {}, el("tr", {}, cells)),
    el("tbody", {}, rows),
  );
}

export const numberCell = (text) => el("td", { class: "figure" }, text);

// A chance: a number with a bar below it.
export function chanceCell(value, kind) {
  if (value == null) return el("td", { class: "chance" }, "–");
  const filled = el("span");
  filled.style.setProperty("--chance", Math.min(1, Math.max(0, value)));
  const bar = el("span", { class: "bar", "aria-hidden": "true" }, filled);
  return el("td", { class: `chance ${kind}` }, percent(value), bar);
}

export function itemName(entry, user) {
  const id = entry.title == null ? [] : [printed(entry.item)];
  const clicks = entry.clicks == null ? [] : [counted(entry.clicks, "click")];
  return [
    el("a", { href: itemAddress(entry.item, user) }, nameOf(entry)),
    el("small", {}, [...id, ...clicks].join(" · ")),
  ];
}

export const itemCell = (entry, user) => el("td", { class: "item" }, itemName(entry, user));

// Relevance and exposure, as far as the model has them.
export function chanceHeads() {
  const heads = hasChances() ? [["Relevance", "chance"]] : [];
  return page.model.has_exposure ? [...heads, ["Exposure", "chance"]] : heads;
}

export function chanceCells(entry) {
  const cells = hasChances() ? [chanceCell(entry.relevance, "liked")] : [];
  return page.model.has_exposure ? [...cells, chanceCell(entry.exposure, "seen")] : cells;
}

// How an item moved against the untouched list, of which the reader saw the first k.
export function moveOf(rank, before, k) {
  if (before === rank) return { kind: "same" };
  if (before == null) return { kind: "new", mark: "new", words: "new in the list" };
  if (before > k) return { kind: "new", mark: "new", words: `new in the list, was ${before}` };
  const [kind, sign] = before > rank ? ["up", "↑"] : ["down", "↓"];
  const steps = Math.abs(before - rank);
  return { kind, mark: `${sign} ${steps}`, words: `${kind} ${steps}, was ${before}` };
}

function rankCell(rank, move) {
  const mark =
    move.mark &&
    el(
      "small",
      { class: move.kind, title: move.words },
      el("span", { "aria-hidden": "true" }, move.mark),
      el("span", { class: "unseen" }, `, ${move.words}`),
    );
  return el("td", { class: "rank" }, String(rank), mark);
}

// A recommended list; `moves` says for each entry how it moved.
export function listTable(caption, entries, { moves = [], user = null } = {}) {
  const rows = entries.map((entry, n) => {
    const move = moves[n] ?? { kind: "same" };
    const score = hasChances() ? null : numberCell(entry.score.toPrecision(3));
    const cells = [rankCell(entry.rank, move), itemCell(entry, user), score, chanceCells(entry)];
    const row = el("tr", {}, cells.flat());
    row.dataset.item = printed(entry.item);
    row.dataset.move = move.kind;
    return row;
  });
  const score = hasChances() ? [] : [["Score", "figure"]];
  return table(caption, [["Rank", "rank"], ["Item", "item"], ...score, ...chanceHeads()], rows);
}

const rowsOf = (place) => [...place.querySelectorAll("tr[data-item]")];
const topOf = (row) => row.getBoundingClientRect().top;

export const placesOf = (place) => new Map(rowsOf(place).map((row) => [row.dataset.item, topOf(row)]));

// Let rows glide from where they were.
export function glide(before, place) {
  if (!before.size || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const row of rowsOf(place)) {
    const top = before.get(row.dataset.item);
    const way = `translateY(${top - topOf(row)}px)`;
    const first = top == null ? { opacity: 0 } : { transform: way };
    const last = top == null ? { opacity: 1 } : { transform: "none" };
    row.animate([first, last], { duration: 300, easing: "ease-out" });
  }
}
