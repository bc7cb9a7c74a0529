// The API of this host, as the one who holds the token may ask it.

const KEY = "osgym-token";

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

/** Ask; `headers` are added. Answers of 304 are returned as they are. */
export async function ask(path, { headers = {}, signal } = {}) {
  const token = sessionStorage.getItem(KEY);
  const all = token ? { ...headers, Authorization: `Bearer ${token}` } : headers;
  const limit = AbortSignal.timeout(40_000);
  const answer = await fetch(path, {
    headers: all, cache: "no-store", signal: signal ? AbortSignal.any([signal, limit]) : limit,
  });
  if (answer.ok || answer.status === 304) return answer;
  if (answer.status === 401) throw new TokenNeeded();
  const said = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, said.code ?? "", said.message ?? `HTTP ${answer.status}`);
}

export async function json(path, options) {
  return (await ask(path, options)).json();
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
    const blob = await answer.blob();
    const old = this.url;
    this.etag = answer.headers.get("ETag");
    this.url = URL.createObjectURL(blob);
    this.image.src = this.url;
    await this.image.decode().catch(() => {});
    if (old) URL.revokeObjectURL(old);
    return true;
  }

  close() {
    if (this.url) URL.revokeObjectURL(this.url);
    this.url = this.etag = null;
  }
}
