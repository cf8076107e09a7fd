// The stream of pictures. It is read with fetch, which can show a token; EventSource cannot.

/** Without a word for this long the connection is given up: the daemon says something every five seconds. */
const SILENCE_MS = 12000;
/** Nobody looks at a page in the background: after this long it stops asking. */
const HIDDEN_MS = 60000;

export class Stream {
  /** `told(event, data)`, `state(word, sentence)`, `refused(sentence)` when a token is asked for. */
  constructor(handlers) {
    Object.assign(this, handlers, { token: null, failures: 0, run: 0 });
    let hiding;
    document.addEventListener("visibilitychange", () => {
      clearTimeout(hiding);
      if (document.hidden) hiding = setTimeout(() => this.stop("paused in the background"), HIDDEN_MS);
      else if (!this.running) this.start();
    });
  }
  fields() { return this.token ? { Authorization: `Bearer ${this.token}` } : {}; }
  stop(why) {
    this.run++;
    this.running = false;
    this.abort?.abort();
    if (why) this.state("quiet", why);
  }
  start() {
    this.stop();
    this.running = true;
    this.follow(this.run);
  }
  async follow(run) {
    while (run === this.run) {
      const sentence = await this.once(run);
      if (run !== this.run) return;
      const wait = Math.min(8, 2 ** Math.min(this.failures++, 3)) * 1000;
      this.state("bad", sentence);
      await new Promise((done) => setTimeout(done, wait / 2 + Math.random() * (wait / 2)));
    }
  }
  /** Until it ends; why it did. */
  async once(run) {
    const abort = (this.abort = new AbortController());
    let silence;
    const alive = () => { clearTimeout(silence); silence = setTimeout(() => abort.abort(), SILENCE_MS); };
    alive();
    try {
      const answer = await fetch("/dashboard/stream", { headers: this.fields(), signal: abort.signal, cache: "no-store" });
      if (!answer.ok) {
        const { detail } = await answer.json().catch(() => ({ detail: answer.statusText }));
        if (answer.status === 401 && run === this.run) {
          this.stop();
          this.refused(detail);
        }
        return detail;
      }
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done || run !== this.run) return "the daemon has ended the connection";
        alive();
        text += value;
        for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) this.event(text.slice(0, end));
      }
    } catch {
      return "no connection to the daemon";
    } finally {
      clearTimeout(silence);
    }
  }
  event(block) {
    const field = (name) => block.split("\n").find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
    const data = field("data");
    if (!data) return;
    this.failures = 0;
    this.told(field("event"), JSON.parse(data));
  }
}
