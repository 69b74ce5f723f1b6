/** The playground: joins the parts of the page to each other and to the server. */
import { figures, grow, messages, newTurn } from "./answer.js";
import { chat, getStatus } from "./api.js";
import { byId, say } from "./dom.js";
import { loadKey, loadTurns, saveKey, saveTurns } from "./store.js";
import "./chat-composer.js";
import "./chat-log.js";
import "./chat-settings.js";
import "./live-figures.js";
import "./token-card.js";

const [log, composer, settings, live] = [
  "chat-log", "chat-composer", "chat-settings", "live-figures",
].map((name) => document.querySelector(name));

let turns = loadTurns();
let cleared = null;   // the turns before they were cleared, until something else is said
let key = loadKey();
let server = null;    // what GET /status said
let answering = null; // {turn, abort} while an answer comes
let waiting = null;   // the turn that waits for an API key

/** Ask the server what it has. Throws ServerError. */
async function meet() {
  server = await getStatus(key);
  settings.offer(server);
  live.plain = server.plain_tokens_per_second;
  const lossless = server.lossless ? "lossless" : "lossy";
  document.body.classList.toggle("lossy", !server.lossless);
  byId("model").textContent = [server.model, server.dtype, lossless].join(" · ");
  document.title = `${server.model} · Paceline`;
}

async function send(asked) {
  if (!ready()) return;
  composer.clear();
  forgetCleared();
  const turn = newTurn(asked, performance.now());
  const body = messages(turns, settings.system, asked);
  turns.push(turn);
  saveTurns(turns);
  answering = { turn, abort: new AbortController() };
  composer.busy = true;
  byId("clear").disabled = true;
  log.open(turn);
  say("The answer is coming.");
  try {
    await answer(turn, body, answering.abort.signal);
  } catch (error) {
    fail(turn, error);
  }
  answering = null;
  composer.busy = false;
  byId("clear").disabled = false;
  saveTurns(turns);
  log.finish(turn);
  showFigures();
  const { total } = figures(turn);
  say(turn.problem ? turn.problem.text : `The answer is there: ${total} tokens.`);
}

/** Whether something can be sent; shows the setting that is in the way. */
function ready() {
  if (answering || settings.valid) return !answering;
  if (byId("open-settings").checkVisibility()) openSettings(true);
  settings.complain();
  return false;
}

async function answer(turn, said, signal) {
  if (!server) await meet();
  const body = {
    model: server.model,
    messages: said,
    stream: true,
    stream_options: { include_usage: true },
    speculation_details: true,
    ...settings.fields,
  };
  let fresh = [];  // tokens to be shown with the next frame
  const show = () => {
    if (!fresh.length) return;
    log.add(turn, fresh);
    live.show(turn);
    fresh = [];
  };
  try {
    for await (const chunk of chat(body, key, signal)) {
      if (!fresh.length) requestAnimationFrame(show);
      fresh.push(...grow(turn, chunk, performance.now()));
    }
  } finally {
    show();
  }
}

function fail(turn, error) {
  if (error.name === "AbortError") {
    turn.finish = "stopped";
    return;
  }
  server = null;  // it may have been started anew, with another model
  const refused = error.status === 401;
  const text = refused ? "The server wants an API key: enter it below." : sentence(error.message);
  turn.problem = { text, help: help(error) };
  if (refused) askForKey(turn);
}

function help({ status, retryAfter, message }) {
  if (status === 429 && retryAfter && !/\d s\b/.test(message)) {
    return `There should be room in ${retryAfter} s.`;
  }
  if (status === 400 && /chat template/.test(message)) {
    return "This page can only chat. POST /v1/completions has such a model continue a text.";
  }
  return null;
}

function sentence(text) {
  const whole = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
}

function askForKey(turn) {
  waiting = turn;
  byId("key-form").hidden = false;
  byId("key").focus();
}

async function useKey(event) {
  event.preventDefault();
  key = byId("key").value;
  try {
    await meet();
  } catch (error) {
    byId("key-note").textContent =
      error.status === 401 ? "The server refuses this key." : sentence(error.message);
    byId("key").select();
    return;
  }
  saveKey(key);
  byId("key-form").hidden = true;
  composer.focus();
  if (waiting) again(waiting);
  waiting = null;
}

function again(turn) {
  if (!turns.includes(turn) || !ready()) return;
  turns = turns.filter((other) => other !== turn);
  log.remove(turn);
  send(turn.asked);
}

function clear() {
  cleared = turns;
  turns = [];
  showAll();
  byId("cleared").hidden = false;
  say("The chat is cleared.");
  composer.focus();
}

function undo() {
  turns = cleared;
  forgetCleared();
  showAll();
  composer.focus();
}

function forgetCleared() {
  cleared = null;
  byId("cleared").hidden = true;
}

function showAll() {
  saveTurns(turns);
  log.show(turns);
  showFigures();
  byId("clear").disabled = !turns.length;
}

/** The figures of the last turn that has any. */
function showFigures() {
  live.show(turns.findLast((turn) => turn.text) ?? null);
}

function openSettings(open) {
  settings.classList.toggle("open", open);
  byId("open-settings").setAttribute("aria-expanded", open);
  (open ? byId("close-settings") : byId("open-settings")).focus();
}

composer.addEventListener("send", ({ detail }) => send(detail));
composer.addEventListener("stop", () => answering?.abort.abort());
log.addEventListener("again", ({ detail }) => again(detail));
log.addEventListener("click", ({ target }) => {
  if (target.closest(".welcome button")) send(target.textContent);
});
byId("clear").addEventListener("click", clear);
byId("undo").addEventListener("click", undo);
byId("key-form").addEventListener("submit", useKey);
byId("open-settings").addEventListener("click", () => {
  openSettings(!settings.classList.contains("open"));
});
byId("close-settings").addEventListener("click", () => openSettings(false));
document.addEventListener("keydown", ({ key: pressed }) => {
  if (pressed !== "Escape") return;
  if (settings.classList.contains("open")) openSettings(false);
  else answering?.abort.abort();
});
window.addEventListener("pagehide", () => {
  if (answering) answering.turn.finish = "stopped";
  saveTurns(turns);
});

showAll();
meet().catch((error) => {
  if (error.status === 401) askForKey(null);
  else byId("model").textContent = sentence(error.message);
});
