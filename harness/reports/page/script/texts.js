/* The texts of all items: unpacked, searched and shown in brief, in workers where the browser allows them. */

/** The work itself. It runs in a worker from its own source, so it uses nothing from outside but `scope`. */
function textService(scope) {
  const OVERLAP = 80; // characters of a shared beginning that are searched with what follows it
  const SHARED = 200; // characters that two questions have in common before it counts as shared
  const chunks = new Map();
  const lately = []; // the chunks whose items are kept as they are
  let queue = Promise.resolve();

  async function unpacked(code) {
    const bytes = Uint8Array.fromBase64
      ? Uint8Array.fromBase64(code)
      : Uint8Array.from(atob(code), (sign) => sign.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  }

  const question = (item) => item?.asked?.[0]?.question ?? "";

  /** Return how many characters each item's question shares with the next ones or those before: few-shot examples. */
  function leads(items) {
    let prefix = "";
    return items.map((item, place) => {
      const text = question(item);
      if (!prefix || !text.startsWith(prefix)) {
        const next = question(items[place + 1]);
        let length = 0;
        while (length < text.length && text[length] === next[length]) length += 1;
        length = text.lastIndexOf("\n", length - 1) + 1;
        prefix = length >= SHARED ? text.slice(0, length) : "";
      }
      return prefix.length;
    });
  }

  const flat = (value) => (typeof value === "string" ? value : value == null ? "" : JSON.stringify(value));

  /** Return what a search looks through: what was asked, what was answered, and the rest. */
  function pieces(item, lead) {
    const prompt = [];
    const answer = [];
    for (const asked of item.asked ?? []) {
      prompt.push(prompt.length ? asked.question ?? "" : question(item).slice(lead));
      for (const [, text] of asked.turns ?? []) prompt.push(text);
      for (const choice of asked.choices ?? []) answer.push(choice.text);
      for (const said of asked.answers ?? []) answer.push(said.text, said.remark);
    }
    for (const program of item.programs ?? []) answer.push(program.text, program.outcome, program.detail);
    const other = [item.message, item.gold, ...Object.values(item.extracted ?? {}), ...(item.notes ?? [])];
    other.push(...Object.values(item.row ?? {}).map(flat));
    return [prompt, answer, other].map((texts) => texts.filter(Boolean).join("\n"));
  }

  /** Return the texts of a chunk's items as slices of one string, which takes least memory. */
  function searchable(items) {
    const from = leads(items).map((lead) => Math.max(0, lead - OVERLAP));
    const each = items.flatMap((item, place) => pieces(item, from[place]));
    const whole = each.join("\u0000");
    let start = 0;
    const slices = each.map(({ length }) => whole.slice(start, (start += length + 1) - 1));
    const prefixes = new Map();
    return items.map((item, place) => {
      const prefix = question(item).slice(0, from[place]);
      if (!prefixes.has(prefix)) prefixes.set(prefix, { text: prefix, lead: from[place] ? OVERLAP : 0 });
      const read = Object.values(item.extracted ?? {}).find((text) => text != null);
      const chosen = (item.asked ?? []).flatMap((asked) => asked.choices ?? []).find((choice) => choice.chosen);
      const [prompt, answer, other] = slices.slice(3 * place, 3 * place + 3);
      const first = item.asked?.[0]?.answers?.[0]?.text?.length ?? answer.length;
      return { prefix: prefixes.get(prefix), said: read ?? chosen?.text ?? null, first, prompt, answer, other };
    });
  }

  async function items(key) {
    const known = lately.find((one) => one.key === key);
    if (known) return known.items;
    const found = await unpacked(chunks.get(key).code);
    lately.unshift({ key, items: found });
    lately.length = Math.min(lately.length, 4);
    return found;
  }

  const calls = {
    add({ key, code }) {
      chunks.set(key, { code, texts: null });
    },
    /** Make a chunk ready for searches, one after the other: so few are unpacked at a time. */
    prepare({ key }) {
      const chunk = chunks.get(key);
      queue = queue.then(async () => {
        chunk.texts ??= searchable(await unpacked(chunk.code));
      });
      return queue;
    },
    /** Look for a pattern in these chunks; in a beginning that items share it is looked for once. */
    search({ source, flags, where, keys }) {
      const pattern = new RegExp(source, flags);
      const known = new Map();
      const inPrefix = (prefix) => {
        if (!known.has(prefix)) known.set(prefix, pattern.test(prefix.text));
        return known.get(prefix);
      };
      return keys.filter((key) => chunks.get(key)?.texts).map((key) => {
        const hits = Uint8Array.from(chunks.get(key).texts, (text) =>
          (where !== "answer" && (inPrefix(text.prefix) || pattern.test(text.prompt)))
          || (where !== "prompt" && pattern.test(text.answer))
          || (where === "" && pattern.test(text.other)));
        return { key, hits };
      });
    },
    /** Return question and answer of items in a line each: of a question its last paragraph, after any examples. */
    brief({ wanted }) {
      const line = (text) => text.slice(0, 400).replace(/\s+/g, " ").trim().slice(0, 200);
      const last = (text) => text.slice(text.trimEnd().lastIndexOf("\n\n") + 1);
      return wanted.map(({ key, place }) => {
        const text = chunks.get(key)?.texts?.[place];
        if (!text) return null;
        const said = text.said ?? text.answer.slice(0, text.first);
        return { asked: line(last(text.prompt.slice(text.prefix.lead))), said: line(said) };
      });
    },
    async item({ key, place }) {
      const all = await items(key);
      return { ...all[place], lead: leads(all)[place] };
    },
    chunk({ key }) {
      return items(key);
    },
  };

  scope.onmessage = async ({ data: { id, name, argument } }) => {
    try {
      scope.postMessage({ id, value: await calls[name](argument) });
    } catch (error) {
      scope.postMessage({ id, error: String(error?.message ?? error) });
    }
  };
}

/** The page's side of it: which worker has which chunk, and answers by call. */
class Texts {
  static patience = 15_000; // milliseconds after which a pattern counts as one that does not end

  constructor() {
    this.calls = new Map();
    this.next = 0;
    this.start();
  }

  start() {
    this.sent = new Map();
    this.prepared = new Map(); // by chunk: the promise of its texts
    this.workers = [];
    const many = Math.max(1, Math.min(4, navigator.hardwareConcurrency ?? 2));
    try {
      const source = new Blob([`"use strict";(${textService})(self)`], { type: "text/javascript" });
      const address = URL.createObjectURL(source);
      while (this.workers.length < many) this.workers.push(new Worker(address));
    } catch {
      this.workers = [this.here()];
    }
    for (const worker of this.workers) {
      worker.onmessage = ({ data }) => this.answered(data);
      worker.onerror = () => this.workers.length && this.withoutWorkers();
    }
  }

  /** Return what looks like a worker, and works on the page itself. */
  here() {
    const inside = { postMessage: (data) => outside.onmessage({ data }) };
    const outside = {
      postMessage: (data) => setTimeout(() => inside.onmessage({ data })),
      terminate: () => {},
    };
    textService(inside);
    return outside;
  }

  /** Go on without workers, where the browser refuses them only after they were made. */
  withoutWorkers() {
    this.workers = [this.here()];
    this.workers[0].onmessage = ({ data }) => this.answered(data);
    this.sent.clear();
    const again = [...this.calls.values()];
    this.calls.clear();
    for (const { key, name, argument, resolve, reject } of again) {
      if (name !== "add") this.call(key, name, argument).then(resolve, reject);
    }
  }

  answered({ id, value, error }) {
    const call = this.calls.get(id);
    this.calls.delete(id);
    if (error === undefined) call?.resolve(value);
    else call?.reject(new Error(error));
  }

  /** Ask the worker of a chunk, which gets the chunk before its first call; a number asks that worker. */
  call(key, name, argument) {
    const chunk = typeof key === "string";
    if (chunk && !this.sent.has(key)) {
      this.sent.set(key, this.sent.size);
      this.call(key, "add", { key, code: byId(key).textContent });
    }
    const which = (chunk ? this.sent.get(key) : key) % this.workers.length;
    return new Promise((resolve, reject) => {
      const id = (this.next += 1);
      this.calls.set(id, { key, name, argument, resolve, reject });
      this.workers[which].postMessage({ id, name, argument });
    });
  }

  /** Make the texts of these chunks ready for searches, each chunk once; `told` hears which share is. */
  async prepare(keys, told = () => {}) {
    let done = 0;
    await Promise.all(keys.map(async (key) => {
      if (!this.prepared.has(key)) this.prepared.set(key, this.call(key, "prepare", { key }));
      await this.prepared.get(key);
      done += 1;
      told(done / keys.length);
    }));
  }

  /** Return by chunk which of its items have the pattern. */
  async search(query) {
    let late;
    const tooLong = new Promise((_, reject) => {
      late = setTimeout(() => reject(new Error("it takes too long; make it simpler")), Texts.patience);
    });
    try {
      const all = this.workers.map((_, which) => this.call(which, "search", query));
      const answers = await Promise.race([Promise.all(all), tooLong]);
      return new Map(answers.flat().map(({ key, hits }) => [key, hits]));
    } catch (error) {
      if (error.message.startsWith("it takes")) this.restart();
      throw error;
    } finally {
      clearTimeout(late);
    }
  }

  restart() {
    for (const worker of this.workers) worker.terminate();
    for (const { reject } of this.calls.values()) reject(new Error("it was given up"));
    this.calls.clear();
    this.start();
  }

  /** Return question and answer in brief for each [part, item]; null for those not ready. */
  async brief(wanted) {
    const byWorker = new Map();
    wanted.forEach(([part, item], order) => {
      const [key, place] = parts[part].place(item);
      if (!this.sent.has(key)) return;
      const which = this.sent.get(key) % this.workers.length;
      if (!byWorker.has(which)) byWorker.set(which, []);
      byWorker.get(which).push({ key, place, order });
    });
    const found = new Array(wanted.length).fill(null);
    await Promise.all([...byWorker].map(async ([which, some]) => {
      const answers = await this.call(which, "brief", { wanted: some });
      some.forEach(({ order }, index) => { found[order] = answers[index] ?? null; });
    }));
    return found;
  }

  async item(part, item) {
    const [key, place] = parts[part].place(item);
    return this.call(key, "item", { key, place });
  }
}
