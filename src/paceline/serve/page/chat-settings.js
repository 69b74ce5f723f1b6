/** <chat-settings>: the form beside the chat. */
import { make } from "./dom.js";
import { loadSettings, saveSettings } from "./store.js";

const NUMBERS = ["temperature", "max_tokens", "num_speculative_tokens", "seed"];

export class ChatSettings extends HTMLElement {
  #form = this.querySelector("form");

  connectedCallback() {
    this.#fill(loadSettings());
    this.#form.addEventListener("submit", (event) => event.preventDefault());
    this.#form.addEventListener("input", () => {
      saveSettings(Object.fromEntries(new FormData(this.#form)));
    });
  }

  /** Offer what the server has. A choice that it does not have falls back to the server's own. */
  offer({ drafts, draft, verifiers, k, context }) {
    const { elements } = this.#form;
    options(elements.draft, `as set: ${draft}`, drafts);
    options(elements.verify, "as set", verifiers);
    elements.num_speculative_tokens.placeholder = `as set: ${k}`;
    elements.max_tokens.max = context;
    this.#fill(loadSettings());
  }

  /** Whether all can be sent. */
  get valid() {
    return this.#form.checkValidity();
  }

  /** Go to the first that cannot be sent, and say why. */
  complain() {
    this.#form.reportValidity();
  }

  /** The system message. */
  get system() {
    return this.#form.elements.system.value;
  }

  /** The fields of a request that are not left to the server. */
  get fields() {
    return Object.fromEntries(
      [...new FormData(this.#form)]
        .filter(([name, value]) => value && name !== "system")
        .map(([name, value]) => [name, NUMBERS.includes(name) ? Number(value) : value]),
    );
  }

  #fill(values) {
    for (const [name, value] of Object.entries(values)) {
      const field = this.#form.elements[name];
      if (!field) continue;
      if (field.options && ![...field.options].some((option) => option.value === value)) continue;
      field.value = value;
    }
  }
}

function options(select, own, names) {
  const offered = names.map((name) => make("option", { value: name }, name));
  select.replaceChildren(make("option", { value: "" }, own), ...offered);
}

customElements.define("chat-settings", ChatSettings);
