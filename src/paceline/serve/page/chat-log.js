/** <chat-log>: the turns of the chat, the last at the bottom and in view unless the reader has
 * scrolled away. Says "again" with a turn to be tried again. */
import { summary } from "./answer.js";
import { make } from "./dom.js";
import "./token-text.js";

const NEAR = 40;  // pixels from the bottom that still count as there

export class ChatLog extends HTMLElement {
  #welcome = this.querySelector(".welcome");
  #places = new Map();  // of a turn: its elements

  /** Show just these turns. */
  show(turns) {
    this.#places.clear();
    this.replaceChildren(...(turns.length ? [] : [this.#welcome]));
    for (const turn of turns) {
      const answer = this.open(turn);
      answer.add(turn.tokens ?? [{ text: turn.text, origin: null }]);
      this.finish(turn);
    }
    this.#down();
  }

  /** Show a turn; its <token-text>, to be filled. */
  open(turn) {
    this.#welcome.remove();
    const answer = make("token-text");
    const foot = make("footer");
    const article = make(
      "article", {},
      make("h2", { className: "unseen" }, "You"),
      make("p", { className: "asked", dir: "auto" }, turn.asked),
      make("h2", { className: "unseen" }, "Answer"),
      answer,
      foot,
    );
    this.#places.set(turn, { article, answer, foot });
    this.append(article);
    article.classList.add("open");
    this.#down();
    return answer;
  }

  add(turn, tokens) {
    const follow = this.scrollHeight - this.scrollTop - this.clientHeight < NEAR;
    this.#places.get(turn).answer.add(tokens);
    if (follow) this.#down();
  }

  /** The answer is over: its figures, or what went wrong. */
  finish(turn) {
    const { article, answer, foot } = this.#places.get(turn);
    article.classList.remove("open");
    answer.hidden = !turn.text;
    const facts = turn.text || turn.finish ? [summary(turn)] : [];
    foot.replaceChildren(
      ...facts.map((text) => make("p", { className: "facts" }, text)),
      ...this.#problem(turn),
    );
    this.#down();
  }

  remove(turn) {
    this.#places.get(turn).article.remove();
    this.#places.delete(turn);
  }

  #problem(turn) {
    if (!turn.problem) return [];
    const again = make("button", { type: "button", className: "link" }, "Try again");
    again.addEventListener("click", () => {
      this.dispatchEvent(new CustomEvent("again", { detail: turn }));
    });
    const { text, help } = turn.problem;
    const words = [text, help].filter(Boolean).map((part) => make("span", {}, part));
    return [make("p", { className: "problem" }, ...words, again)];
  }

  #down() {
    this.scrollTop = this.scrollHeight;
  }
}

customElements.define("chat-log", ChatLog);
