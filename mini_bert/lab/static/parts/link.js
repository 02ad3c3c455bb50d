// Deep links: #room?name=value&…

export function readLink() {
  const [name, query = ""] = location.hash.slice(1).split(/\?(.*)/s);
  return { name: safe(name), params: Object.fromEntries(new URLSearchParams(query)) };
}

function safe(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return "";
  }
}

export function linkTo(name, params = {}) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== "" && value !== undefined && value !== null));
  return query.size ? `#${name}?${query}` : `#${name}`;
}

// A whole number from a link, or the default.
export function whole(text, low, high, otherwise) {
  const value = /^\d{1,6}$/.test(text ?? "") ? Number(text) : NaN;
  return value >= low && value <= high ? value : otherwise;
}

// A list of positions from a link, such as 4,6
export const places = (text) => (text ?? "").split(",").filter((one) => /^\d{1,3}$/.test(one)).map(Number);
