/** Elements and words that several parts of the page need. */

/** An element with these properties and children. Strings become text, never markup. */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

export function byId(id) {
  return document.getElementById(id);
}

/** Tell those who listen rather than look; what was said before is replaced. */
export function say(text) {
  byId("said").textContent = text;
}

/** A number with a fixed count of decimals, or a dash for null. */
export function number(value, decimals) {
  return value === null ? "–" : value.toFixed(decimals);
}

/** Text with what cannot be seen made visible: spaces at its ends, line breaks, controls. */
export function visible(text) {
  return text
    .replace(/^ +| +$/g, (spaces) => "␣".repeat(spaces.length))
    .replace(/\n/g, "↵")
    .replace(/\t/g, "⇥")
    .replace(/[\p{Cc}\p{Cf}]/gu, (c) => `\\u${c.codePointAt(0).toString(16).padStart(4, "0")}`);
}
