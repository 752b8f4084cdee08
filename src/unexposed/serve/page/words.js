// Ids, names and numbers as a reader sees them.

// An id as Python prints it: the server finds an id in an address by how it prints.
export function printed(id) {
  if (Array.isArray(id)) return `(${id.map(quoted).join(", ")}${id.length === 1 ? "," : ""})`;
  if (typeof id === "boolean") return id ? "True" : "False";
  return id === null ? "None" : String(id);
}

function quoted(part) {
  if (typeof part !== "string") return printed(part);
  const quote = part.includes("'") && !part.includes('"') ? '"' : "'";
  return quote + part.replaceAll("\\", "\\\\").replaceAll(quote, `\\${quote}`) + quote;
}

export const same = (one, other) => printed(one) === printed(other);

export const nameOf = (entry) => entry.title ?? printed(entry.item);

export const number = (n) => n.toLocaleString("en-US");

export const counted = (n, one) => `${number(n)} ${one}${n === 1 ? "" : "s"}`;

// 83 %, 4.2 %, 0.03 %: two digits that count.
export function percent(share) {
  const digits = share === 0 || share > 0.0995 ? 0 : share >= 0.001 ? 1 : 2;
  return `${(share * 100).toFixed(digits)} %`;
}

export function sentence(text) {
  const ended = /[.!?…]$/.test(text) ? text : `${text}.`;
  return ended.charAt(0).toUpperCase() + ended.slice(1);
}
