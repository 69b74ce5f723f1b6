/** <token-card>: how the token that is looked at was made, beside it. */
import { make, number, say, visible } from "./dom.js";

const WORDS = {
  accepted: "The drafter guessed it and the target agreed.",
  recovered: "The target refused the guess and drew this instead.",
  bonus: "All guesses of the round were kept; the target added this.",
  plain: "Nothing was drafted here; the target said it alone.",
};

export class TokenCard extends HTMLElement {
  #place = null;  // the element of the token

  connectedCallback() {
    this.hidden = true;
    document.addEventListener("look", ({ detail }) => {
      if (detail) this.#show(detail);
      else this.#hide();
    });
    document.addEventListener("scroll", () => this.#follow(), { capture: true, passive: true });
    window.addEventListener("resize", () => this.#follow());
  }

  #show({ token, place, byKey }) {
    const { text, origin, p, q, proposed, before } = token;
    const name = (of) => make("q", {}, visible(of));
    const rows = [this.#row("p", "target", name(text), p)];
    const drafted = proposed !== null && proposed !== undefined;
    if (drafted) rows.push(this.#row("q", "drafter", name(proposed), q));
    const silent = before ? [make("p", {}, `With ${before} before it that only began it.`)] : [];
    this.replaceChildren(
      make(
        "p", { className: "head" },
        make("strong", {}, name(text)),
        make("b", { className: origin }, origin),
      ),
      make("table", {}, make("tbody", {}, ...rows)),
      make("p", {}, WORDS[origin]),
      ...silent,
    );
    this.#place = place;
    this.#follow();
    if (byKey) {
      const value = number(q ?? null, 3);
      const guess = drafted ? `, the draft had ${visible(proposed)}, q ${value}` : "";
      say(`${visible(text)}: ${origin}, p ${number(p ?? null, 3)}${guess}`);
    }
  }

  #row(letter, who, of, value) {
    const share = make("i");
    share.style.setProperty("--share", value ?? 0);
    return make(
      "tr", {},
      make("th", { scope: "row" }, make("var", {}, letter)),
      make("td", {}, `${who} `, of),
      make("td", { className: "share" }, share),
      make("td", { className: "value" }, number(value ?? null, 3)),
    );
  }

  /** Above the token, or below where there is no room, and beside nothing but the chat; away while the token
   * is scrolled out of sight. */
  #follow() {
    const rect = this.#place?.getClientRects()[0];
    const seen = this.#place?.closest("chat-log")?.getBoundingClientRect();
    this.hidden = !rect || !seen || rect.bottom < seen.top || rect.top > seen.bottom;
    if (this.hidden) return;
    const { width, height } = this.getBoundingClientRect();
    const above = rect.top - height - 8;
    const left = Math.min(rect.left - 12, seen.right - width - 8);
    this.style.left = `${Math.max(8, left)}px`;
    this.style.top = `${above >= 8 ? above : rect.bottom + 8}px`;
  }

  #hide() {
    this.#place = null;
    this.hidden = true;
  }
}

customElements.define("token-card", TokenCard);
