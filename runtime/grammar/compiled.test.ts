import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';
import { ok } from '#gpu-host/protocol/errors.ts';
import { GrammarAccount } from './account.ts';
import { CompiledGrammar, Grammar } from './compiled.ts';
import type { LinkReply, WorkerLink } from './worker-link.ts';
import type { Workers } from './workers.ts';

const DONE: LinkReply = { tag: 'ok', val: undefined };
/** A worker that does whatever it is asked. */
const LINK = { learn: async () => DONE, request: async () => DONE } as unknown as WorkerLink;
const WORKERS = {
  with: async <T>(_: string, use: (link: WorkerLink) => Promise<T>) => ok(await use(LINK)),
} as Workers;

describe('a grammar', () => {
  /** While `is` is true, the tokenizer cannot read its vocabulary. */
  const broken = { is: false };
  const makeGrammar = () => {
    const counts = { unused: 0 };
    const tokenizer = {
      vocabularySize: 1,
      special: { eos: [] },
      stream: () => ({ push: () => 'a', finish: () => '' }),
      tokenBytes: () => {
        if (broken.is) throw new Error('cannot read /home/pie/models/tokens');
        return Buffer.from('a');
      },
    } as unknown as Tokenizer;
    const grammar = new Grammar({
      id: 1,
      tenant: 'tenant',
      source: { tag: 'json' },
      workers: WORKERS,
      model: { name: 'model', tokenizer, vocabularySize: 1 },
      deadlines: { compileMs: 1, operationMs: 1, startMs: 1 },
      onUsed: () => undefined,
      onUnused: () => (counts.unused += 1),
    });
    return { grammar, counts };
  };

  it('is compiled at the next use after its vocabulary could not be read, and its error names no folder', async () => {
    const { grammar } = makeGrammar();
    const asker = { refuse: () => null, charge: () => undefined };
    broken.is = true;
    const failed = await grammar.use(asker, async () => DONE);
    assert.deepEqual(failed, {
      tag: 'err',
      val: { tag: 'internal', val: 'the grammar failed: cannot read tokens' },
    });
    broken.is = false;
    assert.deepEqual(await grammar.use(asker, async () => DONE), DONE);
  });

  it('calls `onUnused` no more once it is forgotten, even when its dropped reference makes a matcher', async () => {
    const { grammar, counts } = makeGrammar();
    const account = new GrammarAccount();
    assert.equal(account.begin(0), null);
    const compiled = new CompiledGrammar(grammar, account, 0);
    await compiled.ready();
    compiled.drop();
    assert.equal(counts.unused, 1);
    grammar.forget();
    const answer = await compiled.matcher().mask();
    assert.equal(answer.tag === 'err' && answer.val.tag, 'closed');
    await nextTurn();
    assert.equal(counts.unused, 1);
  });
});
