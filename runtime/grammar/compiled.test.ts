import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Tokenizer } from '#gpu-host/models/tokenizer.ts';
import { ok } from '#gpu-host/protocol/errors.ts';
import { GrammarAccount } from './account.ts';
import { CompiledGrammar, Grammar } from './compiled.ts';
import type { LinkReply, WorkerLink, Workers } from './workers.ts';

const DONE: LinkReply = { tag: 'ok', val: undefined };
/** A worker that answers every request with success. */
const LINK = { learn: async () => DONE, request: async () => DONE } as unknown as WorkerLink;
const WORKERS = {
  with: async <T>(_: string, use: (link: WorkerLink) => Promise<T>) => ok(await use(LINK)),
} as Workers;

describe('a grammar', () => {
  let isVocabularyBroken = false;
  const makeGrammar = () => {
    const counts = { unused: 0 };
    const tokenizer = {
      vocabularySize: 1,
      special: { eos: [] },
      stream: () => ({ push: () => 'a', finish: () => '' }),
      tokenBytes: () => {
        if (isVocabularyBroken) throw new Error('cannot read /home/pie/models/tokens');
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

  it('fails without naming a folder when its vocabulary cannot be read, and is compiled at the next use', async () => {
    const { grammar } = makeGrammar();
    const asker = { refuse: () => null, charge: () => undefined };
    isVocabularyBroken = true;
    const failed = await grammar.use(asker, async () => DONE);
    assert.deepEqual(failed, {
      tag: 'err',
      val: { tag: 'internal', val: 'the grammar failed: cannot read tokens' },
    });
    isVocabularyBroken = false;
    assert.deepEqual(await grammar.use(asker, async () => DONE), DONE);
  });

  it('does not call `onUnused` after `forget`, even when a dropped reference makes a matcher', async () => {
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
