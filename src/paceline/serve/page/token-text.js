/**
 * <token-text>: an answer, each token in the colour of its origin.
 *
 * Says "look" with {token, place} when the pointer is over a token or the keyboard has stepped to
 * it, and with null when that ends. It is one stop for the Tab key; the arrow keys step through the
 * tokens. Tokens are no controls of their own, so that the answer is read out as one text.
 */
import { make } from "./dom.js";

export class TokenText extends HTMLElement {
  #shown = [];     // {token, place} of the tokens that have text
  #index = new Map();  // of a place in #shown
  #silent = 0;     // tokens without text since the last that had one
  #at = -1;        // where the keyboard is

  connectedCallback() {
    this.tabIndex = 0;
    this.dir = "auto";
    this.setAttribute("role", "group");
    this.setAttribute("aria-label", "Answer. Arrow keys step through its tokens.");
    this.addEventListener("pointerover", (event) => this.#point(event.target));
    this.addEventListener("pointerleave", () => this.#leave());
    this.addEventListener("click", (event) => this.#point(event.target));
    this.addEventListener("keydown", (event) => this.#key(event));
    this.addEventListener("blur", () => this.#step(-1));
  }

  add(tokens) {
    const places = [];
    for (const token of tokens) {
      if (!token.text) {
        this.#silent += 1;
        continue;
      }
      const place = make("span", {}, ...spell(token));
      if (token.origin) place.dataset.origin = token.origin;
      this.#index.set(place, this.#shown.length);
      this.#shown.push({ token: { ...token, before: this.#silent }, place });
      this.#silent = 0;
      places.push(place);
    }
    this.append(...places);
  }

  #point(target) {
    const found = this.#shown[this.#index.get(target.closest("token-text > span"))];
    if (found?.token.origin) this.#look(found);
    else this.#leave();
  }

  /** The pointer is gone: back to where the keyboard is, if it is here. */
  #leave() {
    this.#look(this.#shown[this.#at] ?? null);
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const end = this.#shown.length - 1;
    const steps = {
      ArrowRight: Math.min(this.#at + 1, end),
      ArrowLeft: Math.max(this.#at - 1, 0),
      ArrowDown: this.#line(1),
      ArrowUp: this.#line(-1),
      Home: 0,
      End: end,
    };
    if (event.key === "Escape" && this.#at >= 0) {
      event.stopPropagation();
      this.#step(-1);
    } else if (event.key in steps && end >= 0) {
      event.preventDefault();
      this.#step(steps[event.key]);
    }
  }

  /** The token on the next line down (1) or up (-1) that is nearest to where the keyboard is. */
  #line(way) {
    if (this.#at < 0) return 0;
    const here = first(this.#shown[this.#at].place);
    let best = this.#at;
    let least = Infinity;
    let line = null;
    for (let i = this.#at + way; i >= 0 && i < this.#shown.length; i += way) {
      const there = first(this.#shown[i].place);
      if (Math.abs(there.top - here.top) < here.height / 2) continue;
      line ??= there.top;
      if (Math.abs(there.top - line) > here.height / 2) break;
      const far = Math.abs(there.left - here.left);
      if (far < least) [least, best] = [far, i];
    }
    return best;
  }

  #step(to) {
    this.#shown[this.#at]?.place.classList.remove("here");
    this.#at = to;
    const found = this.#shown[to] ?? null;
    if (found) {
      found.place.classList.add("here");
      found.place.scrollIntoView({ block: "nearest" });
    }
    this.#look(found, true);
  }

  #look(found, byKey = false) {
    const detail = found?.token.origin ? { ...found, byKey } : null;
    this.dispatchEvent(new CustomEvent("look", { bubbles: true, detail }));
  }
}

/** The token's text; only its words carry the colour and the line, not the space around them. */
function spell({ text, origin }) {
  const words = text.trim();
  if (!words || !origin) return [text];
  const [before, after] = text.split(words);
  return [before, make("u", { className: origin }, words), after];
}

function first(place) {
  return place.getClientRects()[0] ?? place.getBoundingClientRect();
}

customElements.define("token-text", TokenText);
