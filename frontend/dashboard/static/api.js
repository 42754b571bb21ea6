// Calls of the frontend, with the API key where the frontend wants one.

const KEY = "cluster-serving-api-key";

/** The frontend wants an API key, or refuses the one it was given. */
export class KeyWanted extends Error {}

/** Whether a key was given in this tab. */
export const hasKey = () => sessionStorage.getItem(KEY) !== null;

/** Keep an API key for this tab. Nothing: forget it. */
export function keepKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

/** Call a path below the page's folder, and return the response. */
export async function call(path, options = {}) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...options.headers, ...(key ? { "X-API-Key": key } : {}) };
  const response = await fetch(path, { cache: "no-store", ...options, headers });
  if (response.status === 401) throw new KeyWanted((await response.json()).error);
  return response;
}

/** Call a path, and return the document of the answer. An error of the frontend is thrown with its own words. */
export async function ask(path, options) {
  const response = await call(path, options);
  const document = await response.json();
  if (!response.ok) throw new Error(document.error ?? `HTTP ${response.status}`);
  return document;
}
