/**
 * One turn of a chat: what was asked, and the answer as it grows. A turn is plain JSON, so that it
 * can be kept as it is:
 *
 * asked, text        the question and the answer
 * tokens             [{text, origin, p, q, proposed}] of the answer, or null where they are gone
 * rounds             K of each round
 * sent, first, last  when it was asked, and when the first and the last tokens came (ms)
 * opening            how many tokens came first
 * lossless, finish   as the server says; finish is "stopped" if it was stopped here
 * problem            {text, help} if it failed
 */
export function newTurn(asked, now) {
  return {
    asked, text: "", tokens: [], rounds: [], sent: now, first: null, last: null, opening: 0,
    lossless: true, finish: null, problem: null,
  };
}

/** Take a chunk of the stream into the turn; the tokens that it added. */
export function grow(turn, chunk, now) {
  const choice = chunk.choices[0];
  if (chunk.usage?.speculation) turn.lossless = chunk.usage.speculation.lossless;
  if (!choice) return [];
  turn.finish = choice.finish_reason ?? turn.finish;
  const content = choice.delta?.content ?? "";
  const { drafted = [], tokens = [] } = choice.speculation ?? {};
  turn.text += content;
  turn.rounds.push(...drafted);
  // The text is what counts: where the tokens do not spell it, it is shown without them.
  const added = spells(tokens, content) ? tokens : [{ text: content, origin: null }];
  turn.tokens.push(...added);
  if (tokens.length) {
    turn.last = now;
    if (turn.first === null) {
      turn.first = now;
      turn.opening = tokens.length;
    }
  }
  return added;
}

function spells(tokens, content) {
  return tokens.map((token) => token.text).join("") === content;
}

/** The figures of a turn: tokens by origin, rounds as {k, accepted}, τ, α and tokens/s behind the
 * first round; null where there is nothing to say. τ: tokens a round. α: accepted ÷ tested, where
 * a token behind a refused one was never tested. */
export function figures(turn) {
  const counts = { accepted: 0, recovered: 0, bonus: 0, plain: 0 };
  const rounds = turn.rounds.map((k) => ({ k, accepted: 0 }));
  let total = 0;
  let round = 0;
  for (const { origin } of turn.tokens ?? []) {
    if (!origin) continue;
    total += 1;
    counts[origin] += 1;
    if (origin !== "accepted") round += 1;  // the model's own token closes its round
    else if (rounds[round]) rounds[round].accepted += 1;
  }
  const tested = counts.accepted + counts.recovered;
  const seconds = (turn.last - turn.first) / 1000;
  return {
    counts,
    rounds,
    total,
    tau: tested && rounds.length ? total / rounds.length : null,
    alpha: tested ? counts.accepted / tested : null,
    rate: seconds > 0 ? (total - turn.opening) / seconds : null,
    firstAfter: turn.first === null ? null : (turn.first - turn.sent) / 1000,
  };
}

const ENDS = {
  length: "cut at max tokens",
  time_limit: "cut at the server’s time limit",
  stopped: "stopped",
};

/** The line under an answer. */
export function summary(turn) {
  const { total, rate, firstAfter, tau, alpha } = figures(turn);
  const parts = [`${total} tokens`];
  if (rate !== null) parts.push(`${rate.toFixed(1)} tokens/s`);
  if (firstAfter !== null) parts.push(`first after ${firstAfter.toFixed(2)} s`);
  if (tau !== null) parts.push(`τ ${tau.toFixed(2)}`);
  if (alpha !== null) parts.push(`α ${alpha.toFixed(2)}`);
  if (!turn.lossless) parts.push("lossy");
  if (ENDS[turn.finish]) parts.push(ENDS[turn.finish]);
  return parts.map((part) => part.replaceAll(" ", "\u00a0")).join(" · ");
}

/** The messages to send for a new question: turns without an answer are left out, for the model
 * would otherwise see two questions in a row. */
export function messages(turns, system, asked) {
  const said = turns
    .filter((turn) => turn.text)
    .flatMap((turn) => [
      { role: "user", content: turn.asked },
      { role: "assistant", content: turn.text },
    ]);
  const first = system.trim() ? [{ role: "system", content: system }] : [];
  return [...first, ...said, { role: "user", content: asked }];
}
