import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { pullModel } from '#gpu-host/models/pull.ts';
import { loadTokenizer } from '#gpu-host/models/tokenizer.ts';
import type { Outcome } from '#gpu-host/protocol/errors.ts';
import { Random } from '#test/harness/random.ts';
import { failureOf } from '../testing/outcome.ts';
import { GrammarAccount, GrammarService, type GrammarSource, type Matcher } from './service.ts';
import { allowed, value } from './testing/walk.ts';
import { type GrammarModel, vocabularyOf } from './vocabulary.ts';

const SEED = 99;
const STEPS = process.env.PIE_TEST_ALL ? 250 : 100;
/** The other tenant takes the worker after every 40 steps: a change of workers takes about as long as these steps. */
const TAKEN_AFTER = 40;
const JSON_SOURCE: GrammarSource = { tag: 'json' };
/** A grammar of about 300,000 states, which takes more memory than a small heap has. */
const HUNGRY: GrammarSource = {
  tag: 'json-schema',
  val: JSON.stringify({
    properties: Object.fromEntries(
      Array.from({ length: 320 }, (_, index) => [`p${index}`.padEnd(100), { type: 'string' }]),
    ),
  }),
};
const SMALL_HEAP_MB = 48;
/** Time limits that a loaded machine does not exceed. */
const PATIENT = { compileMs: 20_000, operationMs: 20_000 };

const compile = (service: GrammarService, ...compiled: Parameters<GrammarService['compile']>) =>
  value(service.compile(...compiled));

describe('GrammarService', () => {
  let model: GrammarModel;
  let directory: string;
  before(async () => {
    ({ directory } = await pullModel('minimind2-small'));
    const tokenizer = await loadTokenizer(directory);
    model = { name: 'minimind2-small', tokenizer, vocabularySize: tokenizer.vocabularySize };
  });

  async function using<T>(service: GrammarService, use: (service: GrammarService) => Promise<T>): Promise<T> {
    try {
      return await use(service);
    } finally {
      await service.close();
      assert.equal(service.workers, 0);
    }
  }

  const encode = (text: string) => model.tokenizer.encode(text);

  it('accepts all tokens or none, rolls back, and reports the end', async () => {
    await using(new GrammarService(PATIENT), async (service) => {
      const compiled = compile(service, 'tenant', model, { tag: 'regex', val: '(yes|no), please' });
      assert.deepEqual(await compiled.ready(), { tag: 'ok', val: undefined });
      const matcher = compiled.matcher();
      compiled.drop();
      const [eos] = model.tokenizer.special.eos;
      assert.ok(eos !== undefined);
      assert.equal(value(await matcher.accept(encode('yes, sir'))), false);
      assert.equal(value(await matcher.accept(new Uint32Array(0))), true);
      assert.equal(value(await matcher.accept(encode('no, please'))), true);
      assert.deepEqual(value(await matcher.status()), { mayEnd: true, mustEnd: true });
      assert.deepEqual(allowed(value(await matcher.mask())), [...model.tokenizer.special.eos].sort());
      assert.equal(value(await matcher.accept(Uint32Array.of(eos, eos))), false);
      assert.equal(value(await matcher.accept(Uint32Array.of(eos))), true);
      assert.equal(value(await matcher.accept(encode('!'))), false);
      value(await matcher.rollback(1 + encode('no, please').length));
      assert.deepEqual(value(await matcher.status()), { mayEnd: false, mustEnd: false });
      assert.equal(value(await matcher.accept(encode('yes, please'))), true);
      assert.deepEqual(await matcher.rollback(100), {
        tag: 'err',
        val: {
          tag: 'invalid-argument',
          val: `100 tokens cannot be taken back: ${encode('yes, please').length} were accepted`,
        },
      });
      const outside = await matcher.accept(Uint32Array.of(model.tokenizer.vocabularySize));
      assert.equal(failureOf(outside), 'invalid-argument');
      matcher.drop();
      assert.equal((await matcher.mask()).tag, 'err');
      assert.equal((await matcher.fork().mask()).tag, 'err');
    });
  });

  it('never allows special tokens within a text', async () => {
    await using(new GrammarService(PATIENT), async (service) => {
      const vocabulary = await vocabularyOf(model.tokenizer, model.vocabularySize);
      const special = Array.from({ length: vocabulary.size }, (_, id) => id).filter(
        (id) => vocabulary.offsets[id] === vocabulary.offsets[id + 1] && model.tokenizer.tokenBytes(id).length > 0,
      );
      assert.ok(special.length >= 3, String(special));
      assert.ok(
        special.every(
          (id) => model.tokenizer.decode([id]) === '' && model.tokenizer.decode([id], { special: true }) !== '',
        ),
      );
      const matcher = compile(service, 'tenant', model, { tag: 'regex', val: '[^]{3,}' }).matcher();
      const mask = allowed(value(await matcher.mask()));
      assert.ok(mask.length > vocabulary.size / 2);
      assert.deepEqual(
        special.filter((id) => mask.includes(id)),
        [],
      );
      for (const id of special) assert.equal(value(await matcher.accept(Uint32Array.of(id))), false);
    });
  });

  it(`keeps forks independent and equal to fresh matchers across workers, seed ${SEED}`, async () => {
    const random = new Random(SEED);
    await using(new GrammarService({ ...PATIENT, maxWorkers: 1 }), async (service) => {
      const compiled = compile(service, 'tenant', model, JSON_SOURCE);
      const others = compile(service, 'another tenant', model, JSON_SOURCE);
      const matchers: { matcher: Matcher; accepted: number[] }[] = [{ matcher: compiled.matcher(), accepted: [] }];
      for (let step = 0; step < STEPS; step += 1) {
        // The other tenant takes the only worker, so the next call of any matcher repeats its tokens in a new worker.
        if (step % TAKEN_AFTER === TAKEN_AFTER - 1) {
          const other = others.matcher();
          value(await other.mask());
          assert.equal(service.workers, 1);
          other.drop();
        }
        const chosen = random.pick(matchers);
        const { matcher, accepted } = chosen;
        const action = random.next();
        if (action < 0.5) {
          const token = random.pick(allowed(value(await matcher.mask())));
          const extraToken = random.chance(0.3) ? random.integer(0, model.tokenizer.vocabularySize - 1) : undefined;
          const tokens = extraToken === undefined ? [token] : [token, extraToken];
          // Not awaited, because calls of one matcher run in order.
          const acceptance = matcher.accept(Uint32Array.from(tokens));
          if (random.chance(0.3) && matchers.length < 6) {
            const fork = { matcher: matcher.fork(), accepted: [...accepted] };
            matchers.push(fork);
            if (value(await acceptance)) fork.accepted.push(...tokens);
          }
          if (value(await acceptance)) accepted.push(...tokens);
        } else if (action < 0.7) {
          const tokenCount = random.integer(0, accepted.length);
          value(await matcher.rollback(tokenCount));
          accepted.length -= tokenCount;
        } else if (action < 0.8 && matchers.length > 1) {
          matcher.drop();
          matchers.splice(matchers.indexOf(chosen), 1);
        } else if (action < 0.9) {
          const fresh = compiled.matcher();
          assert.equal(value(await fresh.accept(Uint32Array.from(accepted))), true);
          assert.deepEqual(value(await matcher.mask()), value(await fresh.mask()));
          assert.deepEqual(value(await matcher.status()), value(await fresh.status()));
          fresh.drop();
        }
      }
    });
  });

  it('ends a worker whose grammar takes too much memory, and other matchers still work', async () => {
    await using(new GrammarService({ ...PATIENT, heapMb: SMALL_HEAP_MB }), async (service) => {
      const other = compile(service, 'other', model, JSON_SOURCE).matcher();
      const same = compile(service, 'tenant', model, JSON_SOURCE).matcher();
      for (const matcher of [other, same]) assert.equal(value(await matcher.accept(encode('[1,'))), true);
      const hungry = compile(service, 'tenant', model, HUNGRY);
      const queued = same.accept(encode('2]'));
      const failed = await hungry.ready();
      assert.equal(failureOf(failed), 'limit-exceeded');
      assert.match(failed.tag === 'err' ? failed.val.val : '', /too much memory/);
      assert.deepEqual(await hungry.matcher().mask(), failed);
      assert.equal(value(await queued), true);
      assert.equal(value(await same.status()).mayEnd, true);
      assert.equal(value(await other.accept(encode('2]'))), true);
      assert.equal((await compile(service, 'tenant', model, { tag: 'regex', val: 'a' }).ready()).tag, 'ok');
    });
  });

  it('answers hostile grammar sources with an error', async () => {
    const deep = (open: string, inner: string, close: string) => open.repeat(5000) + inner + close.repeat(5000);
    const sources: [GrammarSource, string][] = [
      [{ tag: 'regex', val: deep('(', 'a', ')') }, 'invalid-argument'],
      [{ tag: 'ebnf', val: `root ::= ${deep('(', '"a"', ')')}` }, 'invalid-argument'],
      [{ tag: 'json-schema', val: deep('{"properties":{"a":', '{}', '}}') }, 'invalid-argument'],
      [{ tag: 'json-schema', val: deep('{"allOf":[', '{}', ']}') }, 'invalid-argument'],
      [{ tag: 'json-schema', val: '{"type":"string","minLength":1000000000}' }, 'invalid-argument'],
      [{ tag: 'json-schema', val: '{"$ref":"#"}' }, 'invalid-argument'],
      [{ tag: 'ebnf', val: 'root ::= root "a" | "b"' }, 'invalid-argument'],
      [{ tag: 'ebnf', val: 'root ::= root root' }, 'invalid-argument'],
      [{ tag: 'regex', val: '(a{0,9999}){9999}'.repeat(50) }, 'invalid-argument'],
    ];
    await using(new GrammarService(PATIENT), async (service) => {
      const matcher = compile(service, 'other', model, JSON_SOURCE).matcher();
      for (const [source, expected] of sources) {
        const answer = await compile(service, 'tenant', model, source).ready();
        assert.equal(failureOf(answer), expected, `${JSON.stringify(source).slice(0, 80)}: ${JSON.stringify(answer)}`);
        value(await matcher.mask());
      }
      const exponential = compile(service, 'tenant', model, {
        tag: 'regex',
        val: '((((((\\w{1,40}){1,40}){1,40}){1,40}){1,40}){1,40}){1,40}',
      }).matcher();
      assert.equal(value(await exponential.accept(encode('aaaa'))), true);
    });
  });

  it('refuses at once a source that is too long or that is not valid Unicode', () => {
    const service = new GrammarService();
    const sources: [string, string][] = [
      ['é'.repeat(150_000), 'invalid-argument'],
      [`a${'\ud83d'}`, 'invalid-argument'],
    ];
    for (const [val, expected] of sources) {
      const refused = service.compile('tenant', model, { tag: 'regex', val });
      assert.equal(failureOf(refused), expected);
    }
    assert.equal(service.workers, 0);
  });

  it('stops the calls of a dropped matcher unless a fork waits for them', async () => {
    await using(new GrammarService(PATIENT), async (service) => {
      const compiled = compile(service, 'tenant', model, { tag: 'regex', val: 'yes, please' });
      const dropped = compiled.matcher();
      const pendingAccept = dropped.accept(encode('yes'));
      dropped.drop();
      assert.deepEqual(await pendingAccept, { tag: 'err', val: { tag: 'closed', val: 'the matcher was dropped' } });
      const parent = compiled.matcher();
      const acceptBeforeFork = parent.accept(encode('yes'));
      const fork = parent.fork();
      const acceptAfterFork = parent.accept(encode('!'));
      parent.drop();
      assert.equal(value(await acceptBeforeFork), true);
      assert.equal(value(await fork.accept(encode(', please'))), true);
      assert.equal(failureOf(await acceptAfterFork), 'closed');
      fork.drop();
      compiled.drop();
      const unusedGrammar = compile(service, 'tenant', model, { tag: 'regex', val: 'b' });
      unusedGrammar.drop();
      const unusedOutcome = await unusedGrammar.ready();
      assert.equal(failureOf(unusedOutcome), 'closed');
      const again = compile(service, 'tenant', model, { tag: 'regex', val: 'b' });
      assert.equal(value(await again.matcher().accept(encode('b'))), true);
    });
  });

  it('bounds the tokens and the waiting calls that the matchers of one account hold', async () => {
    await using(new GrammarService(PATIENT), async (service) => {
      const account = new GrammarAccount();
      const compiled = compile(service, 'tenant', model, { tag: 'regex', val: '[^]*' }, account);
      const matcher = compiled.matcher();
      const [token = 0] = encode('a');
      const maxTokens = 131_072;
      const refused = async (call: Promise<Outcome<unknown>>) => {
        return failureOf(await call) === 'limit-exceeded';
      };
      assert.ok(await refused(matcher.accept(new Uint32Array(maxTokens + 1))));
      const tokens = new Uint32Array(maxTokens).fill(token);
      assert.equal(value(await matcher.accept(tokens)), true);
      const forks = Array.from({ length: 8 }, () => matcher.fork());
      const answers = await Promise.all(forks.map((fork) => refused(fork.rollback(1))));
      // The account keeps eight lists of that length: the matcher's, and those of seven forks.
      assert.deepEqual(answers, [...Array(7).fill(false), true]);
      // Seven forks gave one token back each.
      assert.ok(await refused(compiled.matcher().accept(tokens.subarray(0, 8))));
      assert.equal(value(await compiled.matcher().accept(tokens.subarray(0, 7))), true);
      // An account may have 64 of these calls pending: 32 MiB of tokens, 512 KiB for each call.
      const waiting = Array.from({ length: 100 }, () => forks[0]?.accept(tokens) ?? assert.fail());
      matcher.drop();
      for (const fork of forks) fork.drop();
      for (const call of waiting.slice(70)) assert.ok(await refused(call));
      await Promise.all(waiting);
      assert.equal(value(await compiled.matcher().accept(tokens)), true);
    });
  });

  it('charges the time of its workers and refuses calls when it is used up', async () => {
    await using(new GrammarService(PATIENT), async (service) => {
      let usedMs = 0;
      let answers = 0;
      let maxAnswers = Number.POSITIVE_INFINITY;
      const account = new GrammarAccount({
        charge: (cpuMs) => {
          usedMs += cpuMs;
          answers += 1;
        },
        usedUp: () => answers > maxAnswers,
      });
      const compiled = compile(service, 'tenant', model, JSON_SOURCE, account);
      value(await compiled.ready());
      const matcher = compiled.matcher();
      value(await matcher.mask());
      assert.ok(usedMs > 0);
      maxAnswers = answers;
      const calls = await Promise.all([matcher.accept(encode('[')), matcher.mask()]);
      assert.deepEqual(
        calls.map((call) => failureOf(call)),
        ['ok', 'limit-exceeded'],
      );
      const next = await matcher.status();
      assert.equal(failureOf(next), 'limit-exceeded');
      assert.equal(service.compile('tenant', model, { tag: 'regex', val: 'a' }, account).tag, 'err');
    });
  });

  it("returns masks of the model's size, whatever size its tokenizer has", async () => {
    await using(new GrammarService(PATIENT), async (service) => {
      const tokenizerSize = model.tokenizer.vocabularySize;
      for (const vocabularySize of [tokenizerSize - 100, tokenizerSize + 100]) {
        const sized = { ...model, vocabularySize };
        const matcher = compile(service, 'tenant', sized, { tag: 'regex', val: '[^]{3,}' }).matcher();
        const mask = value(await matcher.mask());
        assert.equal(mask.length, Math.ceil(vocabularySize / 32));
        const ids = allowed(mask);
        assert.ok(ids.length > tokenizerSize / 2 && ids.every((id) => id < Math.min(tokenizerSize, vocabularySize)));
        if (vocabularySize > tokenizerSize)
          assert.equal(value(await matcher.accept(Uint32Array.of(tokenizerSize))), false);
        const outside = await matcher.accept(Uint32Array.of(vocabularySize));
        assert.equal(failureOf(outside), 'invalid-argument');
      }
    });
  });

  it("bounds the memory of a tenant's sources, and keeps room for other tenants", async () => {
    await using(new GrammarService({ ...PATIENT, sourceBytes: 1 << 20 }), async (service) => {
      // The service counts 80 kB for each: 4 bytes for each of 20,000 characters. One tenant alone may take half of 1 MiB, which is six of them.
      const source = (name: string): GrammarSource => ({ tag: 'ebnf', val: `root ::= "${name}"${' '.repeat(20_000)}` });
      const outcomes = Array.from({ length: 8 }, (_, i) => service.compile('many', model, source(`${i}`)));
      const refused = outcomes.filter(({ tag }) => tag === 'err');
      assert.deepEqual(
        refused.map((outcome) => failureOf(outcome)),
        ['limit-exceeded', 'limit-exceeded'],
      );
      const others = ['a', 'b', 'c'].map((name) => compile(service, 'other', model, source(name)));
      assert.deepEqual(await others[2]?.ready(), { tag: 'ok', val: undefined });
      // The same source takes no more room.
      compile(service, 'many', model, source('0')).drop();
      for (const outcome of outcomes) if (outcome.tag === 'ok') outcome.val.drop();
      // Grammars without a holder make room for new ones.
      const again = Array.from({ length: 3 }, (_, i) => compile(service, 'many', model, source(`again ${i}`)));
      assert.deepEqual(await again[2]?.ready(), { tag: 'ok', val: undefined });
      for (const grammar of [...again, ...others]) grammar.drop();
    });
  });

  it('frees the sources of grammars that were made while an older, failed grammar was held', async () => {
    await using(new GrammarService({ ...PATIENT, sourceBytes: 1 << 20 }), async (service) => {
      const makeFailed = async () => {
        const made = compile(service, 'tenant', model, { tag: 'ebnf', val: 'root ::= (' });
        assert.equal((await made.ready()).tag, 'err');
        return made;
      };
      for (let i = 0; i < 10; i += 1) {
        const olderGrammar = await makeFailed();
        // This failed grammar replaces the older one. In the first round, the tenant then has no other grammar.
        (await makeFailed()).drop();
        // The service counts 80 kB, and the tenant may take half of 1 MiB: six such sources.
        const good = compile(service, 'tenant', model, { tag: 'ebnf', val: `root ::= "${i}"${' '.repeat(20_000)}` });
        value(await good.ready());
        for (const grammar of [olderGrammar, good]) grammar.drop();
      }
    });
  });

  it('serves more tenants than it has workers, and ends unused workers', async () => {
    await using(new GrammarService({ ...PATIENT, maxWorkers: 2, idleMs: 200 }), async (service) => {
      const matchers = Array.from({ length: 3 }, (_, index) =>
        compile(service, `tenant ${index}`, model, JSON_SOURCE).matcher(),
      );
      for (let round = 0; round < 2; round += 1) {
        const taken = await Promise.all(matchers.map((matcher) => matcher.accept(encode(round === 0 ? '[1' : ',1'))));
        assert.deepEqual(
          taken.map(value),
          matchers.map(() => true),
        );
        assert.ok(service.workers <= 2);
      }
      while (service.workers > 0) await sleep(20);
      assert.equal(value(await matchers[0]!.accept(encode(']'))), true);
    });
  });

  it('gives a tenant the worker although another tenant always has calls in it, and loses none of those calls', async () => {
    await using(new GrammarService({ ...PATIENT, maxWorkers: 1, turnMs: 100 }), async (service) => {
      const busy = compile(service, 'busy tenant', model, JSON_SOURCE);
      let stop = false;
      let calls = 0;
      const callers = Array.from({ length: 4 }, async () => {
        const matcher = busy.matcher();
        while (!stop) {
          assert.equal(value(await matcher.accept(encode('['))), true);
          value(await matcher.rollback(encode('[').length));
          calls += 1;
        }
      });
      assert.equal(value(await busy.ready()), undefined);
      for (let turn = 0; turn < 2; turn += 1) {
        const before = calls;
        const other = compile(service, `other tenant ${turn}`, model, JSON_SOURCE).matcher();
        assert.equal(value(await other.accept(encode('[1'))), true);
        while (calls === before) await sleep(20);
      }
      stop = true;
      await Promise.all(callers);
    });
  });

  it('answers with closed after it is closed, also to waiting calls', async () => {
    const service = new GrammarService();
    const compiled = compile(service, 'tenant', model, JSON_SOURCE);
    const matcher = compiled.matcher();
    const pending = [compiled.ready(), matcher.mask()];
    await service.close();
    assert.equal(service.workers, 0);
    for (const outcome of [
      ...(await Promise.all(pending)),
      await matcher.mask(),
      await compile(service, 'tenant', model, JSON_SOURCE).ready(),
    ]) {
      assert.equal(failureOf(outcome), 'closed');
    }
  });

  it("runs with the runtime's permissions", async () => {
    const program = `
      const { GrammarService } = await import('#runtime/grammar/service.ts');
      const { loadTokenizer } = await import('#gpu-host/models/tokenizer.ts');
      const service = new GrammarService();
      const tokenizer = await loadTokenizer(process.argv[1]);
      const model = { name: 'model', tokenizer, vocabularySize: tokenizer.vocabularySize };
      const compiled = service.compile('tenant', model, { tag: 'json' });
      const mask = await compiled.val.matcher().mask();
      await service.close();
      console.log(mask.tag);`;
    const flags = [
      '--permission',
      '--allow-fs-read=*',
      '--allow-worker',
      '--no-warnings',
      '--input-type=module',
      '-e',
      program,
    ];
    const { stdout } = await promisify(execFile)(process.execPath, [...flags, directory], { cwd: import.meta.dirname });
    assert.equal(stdout.trim(), 'ok');
  });
});
