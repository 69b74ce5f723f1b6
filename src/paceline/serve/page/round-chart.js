/** <round-chart>: K of the last rounds as a line over the accepted tokens as an area. */

const SVG = "http://www.w3.org/2000/svg";
const ROUNDS = 64;
const HEIGHT = 40;

export class RoundChart extends HTMLElement {
  #svg = document.createElementNS(SVG, "svg");
  #area = document.createElementNS(SVG, "path");
  #line = document.createElementNS(SVG, "path");

  connectedCallback() {
    this.#svg.setAttribute("viewBox", `0 -1 ${ROUNDS} ${HEIGHT + 2}`);
    this.#svg.setAttribute("preserveAspectRatio", "none");
    this.#svg.setAttribute("role", "img");
    this.#area.setAttribute("class", "area");
    this.#line.setAttribute("class", "line");
    this.#svg.append(this.#area, this.#line);
    this.append(this.#svg);
    this.show([]);
  }

  /** Draw rounds, [{k, accepted}], the last at the right end once there are enough to fill it. */
  show(rounds) {
    const last = rounds.slice(-ROUNDS);
    const ks = last.map((round) => round.k);
    const most = Math.max(4, ...ks);
    const steps = (values) =>
      values.map((value, i) => `${i} ${HEIGHT * (1 - value / most)}H${i + 1}`).join("L");
    const accepted = steps(last.map((round) => round.accepted));
    this.#area.setAttribute("d", last.length ? `M0 ${HEIGHT}L${accepted}V${HEIGHT}Z` : "");
    this.#line.setAttribute("d", last.length ? `M${steps(ks)}` : "");
    const range = `${Math.min(...ks)} to ${Math.max(...ks)} in the last ${last.length}`;
    const label = last.length ? `K was ${ks.at(-1)} in the last round, ${range}` : "No rounds yet";
    this.#svg.setAttribute("aria-label", label);
  }
}

customElements.define("round-chart", RoundChart);
