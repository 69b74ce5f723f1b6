/** What the page asks of the server. */

/** The server said no, or could not be reached. `message` is in words, for people. */
export class ServerError extends Error {
  constructor(message, { status = 0, retryAfter = null } = {}) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

/** `GET /status`. Throws ServerError. */
export async function getStatus(key) {
  const response = await ask("status", { headers: headers(key) });
  return response.json();
}

/** The chunks of a streamed chat answer, as they come. Throws ServerError, and AbortError once
 * `signal` is aborted. */
export async function* chat(body, key, signal) {
  const response = await ask("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers(key) },
    body: JSON.stringify(body),
    signal,
  });
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ServerError(chunk.error.message);
    yield chunk;
  }
  throw new ServerError("The server ended the connection before the answer was whole.");
}

function headers(key) {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, { cache: "no-store", ...options });
  } catch (error) {
    throw error.name === "AbortError" ? error : lost();
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => null);
  throw new ServerError(said?.error?.message || `The server answered ${response.status}.`, {
    status: response.status,
    retryAfter: response.headers.get("Retry-After"),
  });
}

function lost() {
  return new ServerError("The server cannot be reached. Is it still running?");
}

/** The data of server-sent events, each on one line as this server sends them. */
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      throw error.name === "AbortError" ? error : lost();
    }
    if (part.done) return;
    const lines = (held + part.value).split("\n");
    held = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data:")) yield line.slice(5).trim();
    }
  }
}
