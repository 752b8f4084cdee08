// Questions to the server: the newest of a kind is answered, the one before it is dropped.

const PAUSE = 140; // ms without typing or sliding before the server is asked

export class Refusal extends Error {} // its message is a sentence for the reader

const running = new Map();

export function newest(kind) {
  drop(kind);
  const controller = new AbortController();
  running.set(kind, controller);
  return controller.signal;
}

export function drop(...kinds) {
  for (const kind of kinds) running.get(kind)?.abort();
}

export const isDropped = (error) => error.name === "AbortError";

export async function ask(path, { query, body, signal } = {}) {
  const address = query ? `${path}?${new URLSearchParams(query)}` : path;
  const headers = { "Content-Type": "application/json" };
  const how = body ? { method: "POST", headers, body: JSON.stringify(body) } : {};
  let response, text;
  try {
    response = await fetch(address, { ...how, signal, cache: "no-store" });
    text = await response.text();
  } catch (error) {
    if (isDropped(error)) throw error;
    throw new Refusal("the server does not answer; is it still running?");
  }
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    throw new Refusal(`this page cannot read the server's answer (status ${response.status})`);
  }
  if (response.ok) return answer;
  throw new Refusal(answer.error ?? `the server refused (status ${response.status})`);
}

// The action, once nobody has asked for it for a while.
export function later(act) {
  let timer;
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(act, PAUSE);
  };
  soon.cancel = () => clearTimeout(timer);
  return soon;
}
