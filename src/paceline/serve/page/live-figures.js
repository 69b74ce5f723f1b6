/** <live-figures>: tokens/s beside the plain rate, τ, α, K by round and the tokens by origin. */
import { figures } from "./answer.js";
import { byId, number } from "./dom.js";
import "./round-chart.js";

export class LiveFigures extends HTMLElement {
  #plain = null;
  #turn = null;

  /** Tokens a second of plain decoding, as the server measured it; null if it did not. */
  set plain(rate) {
    this.#plain = rate || null;
    put("plain-rate", this.#plain, 1);
    this.show(this.#turn);
  }

  /** Show the figures of a turn; null clears them. */
  show(turn) {
    this.#turn = turn;
    const { counts, rounds, total, tau, alpha, rate } = figures(turn ?? { rounds: [], tokens: [] });
    put("rate", rate, 1);
    byId("faster").textContent =
      rate && this.#plain ? `${(rate / this.#plain).toFixed(2)}× plain` : "";
    put("tau", tau, 2);
    put("alpha", alpha, 2);
    put("k", rounds.at(-1)?.k ?? null, 0);
    const most = Math.max(rate ?? 0, this.#plain ?? 0) || 1;
    byId("rate-bar").style.setProperty("--share", (rate ?? 0) / most);
    byId("plain-bar").style.setProperty("--share", (this.#plain ?? 0) / most);
    this.querySelector("round-chart").show(rounds);
    for (const [origin, count] of Object.entries(counts)) {
      this.querySelector(`[data-count=${origin}]`).textContent = total
        ? `${count} · ${Math.round((100 * count) / total)}%`
        : "";
    }
  }
}

function put(id, value, decimals) {
  byId(id).textContent = number(value, decimals);
  byId(id).classList.toggle("none", value === null);
}

customElements.define("live-figures", LiveFigures);
