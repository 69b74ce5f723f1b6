/** What stays in the browser: the chat and the settings until they are cleared, the API key until
 * the tab is closed. A browser that keeps nothing (storage off) works too, and forgets. */

const CHAT = "paceline.chat";
const SETTINGS = "paceline.settings";
const KEY = "paceline.key";

export function loadTurns() {
  const turns = read(CHAT);
  return Array.isArray(turns) ? turns : [];
}

/** Keep the turns. Where they are too many, the oldest lose their tokens, then go. */
export function saveTurns(turns) {
  if (!turns.length) {
    remove(CHAT);
    return;
  }
  const kept = [...turns];
  for (let i = 0; !write(CHAT, kept) && i < turns.length; i += 1) {
    kept[i] = { ...kept[i], tokens: null, rounds: [] };
  }
  while (kept.length && !write(CHAT, kept)) kept.shift();
}

export function loadSettings() {
  return read(SETTINGS) ?? {};
}

export function saveSettings(values) {
  write(SETTINGS, values);
}

export function loadKey() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

export function saveKey(key) {
  try {
    sessionStorage.setItem(KEY, key);
  } catch {
    // Storage is off: the key lasts as long as the page.
  }
}

function read(name) {
  try {
    return JSON.parse(localStorage.getItem(name));
  } catch {
    return null;
  }
}

function remove(name) {
  try {
    localStorage.removeItem(name);
  } catch {
    // Storage is off: there is nothing to remove.
  }
}

/** Whether there was room. */
function write(name, value) {
  try {
    localStorage.setItem(name, JSON.stringify(value));
    return true;
  } catch (error) {
    return error.name !== "QuotaExceededError";
  }
}
