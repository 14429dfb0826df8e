/** One action on KV files, for end-to-end tests of the WIT interface `kv-files`. */
import {
  type Distribution,
  defineInferlet,
  KvFile,
  type Rights,
  receive,
  send,
  specialTokens,
  tokenize,
} from '@pie/inferlet';

type Input =
  /** Computes `prompt` into a new file and saves it. */
  | { action: 'create'; name: string; prompt: string; persistent?: boolean; durable?: boolean; rights?: Rights }
  /** Continues the file with `more`, without saving. Returns the distribution after each token of `more`. */
  | { action: 'read'; name: string; more: string }
  /** Locks the file, appends `more` and saves. With `hold`, sends a message once it has the lock, and waits for one before it saves. */
  | { action: 'append'; name: string; more: string; hold?: boolean; persistent?: boolean; rights?: Rights }
  /**
   * Cuts the file at token `at` and joins the parts. Appends `more` to the joined parts and to a copy of the whole file. Returns the distributions
   * after each token of `more`: `joined` from the joined parts, `expected` from the copy.
   */
  | { action: 'join'; name: string; at: number; more: string }
  /**
   * Appends the text `more` to a file with only the begin-of-text token, and to a fork of that file. Returns the
   * distributions after each token of `more`: `forked` from the fork, `expected` from the file.
   */
  | { action: 'fork'; more: string }
  | { action: 'list'; prefix?: string }
  | { action: 'remove'; name: string };

/** Candidates of each distribution. */
const TOP = 5;

export const run = defineInferlet(async (input: Input) => {
  switch (input.action) {
    case 'create': {
      using file = await KvFile.create();
      const rows = await file.predict(tokenize(input.prompt), { topK: TOP });
      const { persistent = false, durable = false, rights = 'private' } = input;
      // `durable` alone makes a file persistent, too. `persistent: false` beside it would override that.
      await file.save(input.name, { ...(durable ? { durable } : { persistent }), rights });
      return { ...extent(file), next: plain(rows.at(-1)) };
    }
    case 'read': {
      using file = await KvFile.open(input.name);
      const before = extent(file);
      const rows = await file.predict(tokenize(input.more), { topK: TOP });
      return { ...before, rows: rows.map(plain) };
    }
    case 'append': {
      using file = await KvFile.open(input.name, { write: true });
      await file.predict(tokenize(input.more), { topK: 1 });
      if (input.hold) {
        await send('locked');
        await receive();
      }
      await file.save(input.name, { persistent: input.persistent ?? false, rights: input.rights ?? 'private' });
      return extent(file);
    }
    case 'join': {
      using file = await KvFile.open(input.name);
      const { tokens } = extent(file);
      using head = await file.extract(range(0, input.at), { firstPosition: 0 });
      // The tail begins at position 0, too: `merge` has to move its tokens to the positions behind the head.
      using tail = await file.extract(range(input.at, tokens), { firstPosition: 0 });
      await head.merge(tail);
      using whole = await file.fork();
      const more = tokenize(input.more);
      const [joined, expected] = await Promise.all([
        head.predict(more, { topK: TOP }),
        whole.predict(more, { topK: TOP }),
      ]);
      return { ...extent(head), joined: joined.map(plain), expected: expected.map(plain) };
    }
    case 'fork': {
      using file = await KvFile.create();
      await file.predict([specialTokens().bos ?? 0]);
      using fork = await file.fork();
      const [forked, expected] = await Promise.all([
        fork.predict(input.more, { topK: TOP }),
        file.predict(input.more, { topK: TOP }),
      ]);
      return { forked: forked.map(plain), expected: expected.map(plain) };
    }
    case 'list':
      return { files: await KvFile.list(input.prefix ?? '') };
    case 'remove':
      await KvFile.remove(input.name);
      return { removed: input.name };
  }
});

const extent = (file: KvFile) => ({ tokens: file.length, nextPosition: file.nextPosition });

const range = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i);

/** A distribution as JSON can hold it. */
const plain = (row: Distribution | undefined) =>
  row && { tokens: Array.from(row.tokens), logProbabilities: Array.from(row.logProbabilities) };
