// What the page knows, and the address that holds the state of a view.

import { printed } from "./words.js";

export const LENGTHS = [10, 20, 50]; // of a list
export const MOST_IMAGINED = 100; // clicks
const MOST_PENALTY = 1000;
const STEPS_APART = 1_000; // ms; slides closer than this are one step of Back

export const page = {
  model: null, // of /health
  view: null, // state of the view, as in the address
  hash: null, // of the address that the view shows
  ranking: null, // list with sliders on show
};

const met = new Map(); // items by id: title and clicks as met in answers

export function remember(entries) {
  for (const { item, title, clicks } of entries) met.set(printed(item), { item, title, clicks });
  return entries;
}

export const recall = (id) => met.get(id);
export const forgetItems = () => met.clear();

export const hasChances = () => page.model.scale !== "order";

// Relevance and exposure in one sentence.
export function meaning() {
  const liked = hasChances()
    ? "Relevance is the chance that a user would like an item, under this model"
    : `The scores of ${page.model.method} only order items: they are not probabilities`;
  return liked + (page.model.has_exposure ? "; exposure is the chance that the user was shown it." : ".");
}

export function readAddress() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const given = new URLSearchParams(query);
  const id = given.get("id");
  const isKnown = path === "imagined" || (["user", "item"].includes(path) && id != null);
  return {
    view: isKnown ? path : "start",
    id,
    user: given.get("user"),
    clicks: listed(given.get("clicks")),
    penalty: within(given.get("penalty"), MOST_PENALTY),
    exposure: within(given.get("exposure"), 1),
    k: LENGTHS.find((k) => k === Number(given.get("k"))) ?? LENGTHS[0],
  };
}

function within(text, greatest) {
  const value = Number(text);
  return value > 0 && value <= greatest ? value : 0;
}

function listed(text) {
  try {
    const clicks = JSON.parse(text);
    return Array.isArray(clicks) ? clicks.slice(0, MOST_IMAGINED) : [];
  } catch {
    return []; // an address that was cut
  }
}

export function addressOf({ view, id, user, clicks = [], penalty, exposure, k = LENGTHS[0] }) {
  const query = new URLSearchParams();
  if (view === "user" || view === "item") query.set("id", id);
  if (view === "item" && user != null) query.set("user", user);
  if (view === "imagined" && clicks.length) query.set("clicks", JSON.stringify(clicks));
  if (penalty) query.set("penalty", penalty);
  if (exposure) query.set("exposure", exposure);
  if (k !== LENGTHS[0]) query.set("k", k);
  return `#/${view === "start" ? "" : view}${query.size ? `?${query}` : ""}`;
}

export const userAddress = (id) => addressOf({ view: "user", id: printed(id) });
export const itemAddress = (id, user) => addressOf({ view: "item", id: printed(id), user });

let lastSlide = 0;

// Change part of the view and write it into the address.
export function change(part, { sliding = false } = {}) {
  const joined = sliding && Date.now() - lastSlide < STEPS_APART;
  lastSlide = sliding ? Date.now() : 0;
  page.view = { ...page.view, ...part };
  history[joined ? "replaceState" : "pushState"](null, "", addressOf(page.view));
  page.hash = location.hash;
}
