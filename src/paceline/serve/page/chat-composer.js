/** <chat-composer>: where a message is written. Says "send" with the text, and "stop". */
import { byId } from "./dom.js";

export class ChatComposer extends HTMLElement {
  #message = byId("message");

  connectedCallback() {
    const form = this.querySelector("form");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    this.#message.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#send();
    });
    byId("stop").addEventListener("click", () => this.dispatchEvent(new Event("stop")));
    // On a phone this would open the keyboard over the page.
    if (matchMedia("(pointer: fine)").matches) this.#message.focus();
  }

  /** Whether an answer is coming: then it can be stopped and nothing can be sent. */
  set busy(busy) {
    const focused = this.contains(document.activeElement);
    byId("send").hidden = busy;
    byId("stop").hidden = !busy;
    if (focused) this.#message.focus();
  }

  clear() {
    this.#message.value = "";
  }

  focus() {
    this.#message.focus();
  }

  #send() {
    const text = this.#message.value.trim();
    if (text) this.dispatchEvent(new CustomEvent("send", { detail: text }));
  }
}

customElements.define("chat-composer", ChatComposer);
