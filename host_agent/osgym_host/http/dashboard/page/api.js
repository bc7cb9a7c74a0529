// The API of this host, as the one who holds the token may ask it. The page of a host may be below a fleet's.

const KEY = "osgym-token";

/** Where the API is: paths are relative to it. */
export const ROOT = new URL("..", import.meta.url);

/** The token is not given, or wrong. */
export class TokenNeeded extends Error {}

/** The host refused; `code` is its stable error code. */
export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export function keepToken(token) {
  sessionStorage.setItem(KEY, token);
}

/** Ask; `headers` are added, a `body` is sent as JSON. Answers of 304 are returned as they are. */
export async function ask(path, { method, headers = {}, body, signal, keepalive, limitMs = 40_000 } = {}) {
  const token = sessionStorage.getItem(KEY);
  const all = token ? { ...headers, Authorization: `Bearer ${token}` } : headers;
  const limit = AbortSignal.timeout(limitMs);
  const answer = await fetch(new URL(path, ROOT), {
    method: method ?? (body ? "POST" : "GET"), headers: all, body: body && JSON.stringify(body), keepalive,
    cache: "no-store", signal: signal ? AbortSignal.any([signal, limit]) : limit,
  });
  if (answer.ok || answer.status === 304) return answer;
  const said = await answer.json().catch(() => ({}));
  if (answer.status === 401 || said.details?.wrong_tokens) throw new TokenNeeded();
  throw new Refused(answer.status, said.code ?? "", said.message ?? `HTTP ${answer.status}`);
}

export async function json(path, options) {
  return (await ask(path, options)).json();
}

const SCOPES = ["observe", "run", "admin"];

/** What the token may do at the host whose API is there. One that is older than scopes lets every token do all. */
export function access(at = "") {
  return json(`${at}v1/access`).catch((error) => {
    if (error instanceof Refused && error.status === 404) return { scope: "admin", token: null };
    throw error;
  });
}

/** Why this access is not enough for what needs that scope; null where it is. */
export function lacks({ scope, token }, needed) {
  if (SCOPES.indexOf(scope) >= SCOPES.indexOf(needed)) return null;
  return token === null ? "This dashboard was started to look only."
    : `The token ${token} may ${scope} only; this needs one of the scope ${needed}.`;
}

/** Ask for a record: a meta and the bytes of an image, after the lengths of both. */
export async function record(path, options) {
  const data = await (await ask(path, options)).arrayBuffer();
  const view = new DataView(data);
  const end = 8 + view.getUint32(0);
  const meta = JSON.parse(new TextDecoder().decode(data.slice(8, end)));
  return { meta, image: data.slice(end, end + view.getUint32(4)) };
}

/** A picture that is asked for again and again: the last one stays until another one is there. */
export class Picture {
  constructor(image) {
    this.image = image;
    this.etag = null;
    this.url = null;
  }

  /** Show what this path gives now; return whether it changed. */
  async show(path, signal) {
    const headers = this.etag ? { "If-None-Match": this.etag } : {};
    const answer = await ask(path, { headers, signal });
    if (answer.status === 304) return false;
    this.etag = answer.headers.get("ETag");
    await this.put(await answer.blob());
    return true;
  }

  /** Show these bytes. */
  async put(blob) {
    const old = this.url;
    this.url = URL.createObjectURL(blob);
    this.image.src = this.url;
    await this.image.decode().catch(() => {});
    if (old) URL.revokeObjectURL(old);
  }

  close() {
    if (this.url) URL.revokeObjectURL(this.url);
    this.url = this.etag = null;
  }
}
