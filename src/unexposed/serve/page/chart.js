// Relevance beside exposure: each item a dot.

import { drawn, el } from "./elements.js";
import { counted, nameOf, percent } from "./words.js";

const WIDTH = 440;
const HEIGHT = 250;
const LEFT = 46;
const RIGHT = WIDTH - 8;
const TOP = 10;
const BOTTOM = HEIGHT - 36;

const across = (chance) => LEFT + chance * (RIGHT - LEFT);
const upwards = (chance) => BOTTOM - chance * (BOTTOM - TOP);

export function chart(clicked, listed) {
  const items = `${counted(clicked.length, "clicked item")} and ${listed.length} recommended`;
  const label = `${items}, by exposure from left to right and by relevance upwards`;
  const picture = drawn(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label },
    ...[0, 0.5, 1].flatMap(ticks),
    drawn("text", { x: RIGHT, y: HEIGHT - 3, "text-anchor": "end" }, "exposure →"),
    drawn("text", { x: LEFT + 6, y: TOP + 16 }, "↑ relevance"),
    ...clicked.map((entry) => dot(entry, "clicked", 3.8)),
    ...listed.map((entry) => dot(entry, "listed", 4.8)),
  );
  const key = el(
    "figcaption",
    {},
    el("span", { class: "key" }, el("span", { class: "dot hollow" }), "clicked"),
    el("span", { class: "key" }, el("span", { class: "dot" }), "recommended"),
    "Far left and high: would be liked, but was hardly shown.",
  );
  return el("figure", { class: "map" }, picture, key);
}

function ticks(chance) {
  const anchor = { 0: "start", 1: "end" }[chance] ?? "middle";
  const words = `${chance * 100} %`;
  return [
    drawn("line", { class: "grid", x1: LEFT, x2: RIGHT, y1: upwards(chance), y2: upwards(chance) }),
    drawn("text", { x: LEFT - 6, y: upwards(chance) + 4, "text-anchor": "end" }, words),
    drawn("text", { x: across(chance), y: BOTTOM + 17, "text-anchor": anchor }, words),
  ];
}

function dot(entry, kind, radius) {
  const words = `${nameOf(entry)}: relevance ${percent(entry.relevance)}, exposure ${percent(entry.exposure)}`;
  const place = { cx: across(entry.exposure), cy: upwards(entry.relevance), r: radius };
  return drawn("circle", { class: kind, ...place }, drawn("title", {}, words));
}
