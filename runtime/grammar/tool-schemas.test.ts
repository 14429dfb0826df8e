import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Validator } from '@cfworker/json-schema';
import { pullModel } from '#gpu-host/models/pull.ts';
import { loadTokenizer } from '#gpu-host/models/tokenizer.ts';
import { Random } from '#test/harness/random.ts';
import { GrammarService } from './service.ts';
import { type Exits, exitsOf, value, walk } from './testing/walk.ts';
import { translate } from './translate/source.ts';
import type { GrammarModel } from './vocabulary.ts';

const SEED = 20261122;
const WALKS = process.env.PIE_TEST_ALL ? 20 : 3;
/** Tools whose grammars leave a keyword to the check at the end. */
const CHECKED = new Map([
  ['create_issue', ['uniqueItems (#/properties/labels)']],
  ['create_task', ['uniqueItems (#/properties/labels)']],
]);

interface Tool {
  readonly name: string;
  readonly parameters: object;
}

describe('tool schemas', () => {
  const tools: readonly Tool[] = JSON.parse(
    readFileSync(path.join(import.meta.dirname, 'fixtures/tool-schemas.json'), 'utf8'),
  );
  let service: GrammarService;
  let model: GrammarModel;
  let exits: Exits;
  before(async () => {
    service = new GrammarService({ compileMs: 20_000, operationMs: 20_000 });
    const tokenizer = await loadTokenizer((await pullModel('stories15m')).directory);
    model = { name: 'stories15m', tokenizer, vocabularySize: tokenizer.vocabularySize };
    exits = exitsOf(tokenizer);
  });
  after(() => service.close());

  for (const { name, parameters } of tools) {
    it(`make grammars whose texts fit the schema: ${name}, seed ${SEED}`, async () => {
      // In the declared order, a random walk soon writes the required properties.
      const schema = { ...parameters, 'x-guidance': { ordered: true } };
      const source = { tag: 'json-schema', val: JSON.stringify(schema) } as const;
      assert.deepEqual(translate(source).check?.open, CHECKED.get(name));
      const validator = new Validator(JSON.parse(source.val), '2020-12');
      const compiled = value(service.compile('tenant', model, source));
      for (let index = 0; index < WALKS; index += 1) {
        const matcher = compiled.matcher();
        const text = await walk(matcher, model.tokenizer, exits, new Random(SEED + index));
        const { valid, errors } = validator.validate(JSON.parse(text.toString()));
        assert.ok(valid, `${text}\n${JSON.stringify(errors.at(-1))}`);
        matcher.drop();
      }
      compiled.drop();
    });
  }
});

describe('a grammar that leaves a keyword open', () => {
  const schema = { type: 'array', items: { type: 'integer' }, uniqueItems: true };
  const number = { type: 'integer', multipleOf: 99_991 };
  const tokenOfByte = new Map<number, number>();
  let service: GrammarService;
  let model: GrammarModel;
  before(async () => {
    service = new GrammarService({ compileMs: 20_000, operationMs: 20_000 });
    const tokenizer = await loadTokenizer((await pullModel('stories15m')).directory);
    model = { name: 'stories15m', tokenizer, vocabularySize: tokenizer.vocabularySize };
    for (let id = 0; id < tokenizer.vocabularySize; id += 1) {
      const [byte, ...more] = tokenizer.tokenBytes(id);
      if (byte !== undefined && more.length === 0) tokenOfByte.set(byte, id);
    }
  });
  after(() => service.close());

  it('lets a text end that fits, and names the keyword that another text breaks', async () => {
    const compiled = value(service.compile('tenant', model, { tag: 'json-schema', val: JSON.stringify(schema) }));
    const matcher = compiled.matcher();
    const [eos] = model.tokenizer.special.eos;
    assert.ok(eos !== undefined);
    assert.equal(value(await matcher.accept(bytes('[1, 2, 1'))), true);
    assert.deepEqual(value(await matcher.status()), { mayEnd: false, mustEnd: false });
    assert.equal(value(await matcher.accept(bytes(']'))), true);
    for (const outcome of [await matcher.status(), await matcher.mask()]) {
      assert.ok(outcome.tag === 'err' && outcome.val.tag === 'invalid-argument', JSON.stringify(outcome));
      assert.match(outcome.val.val, /has equal items at the indexes 0 and 2.*leaves uniqueItems \(#\) open/);
    }
    assert.equal(value(await matcher.accept(Uint32Array.of(eos))), false);
    // Without the `]`, the last item can still become 10, which is no duplicate.
    value(await matcher.rollback(1));
    assert.equal(value(await matcher.accept(bytes('0]'))), true);
    assert.deepEqual(value(await matcher.status()), { mayEnd: true, mustEnd: true });
    const fork = matcher.fork();
    assert.equal(value(await fork.accept(Uint32Array.of(eos))), true);
  });

  it('does not let a text end that does not fit, but lets it go on while it may still fit', async () => {
    const compiled = value(service.compile('tenant', model, { tag: 'json-schema', val: JSON.stringify(number) }));
    const matcher = compiled.matcher();
    const [eos] = model.tokenizer.special.eos;
    assert.ok(eos !== undefined);
    assert.equal(value(await matcher.accept(bytes('9999'))), true);
    assert.deepEqual(value(await matcher.status()), { mayEnd: false, mustEnd: false });
    const mask = value(await matcher.mask());
    assert.equal(((mask[eos >>> 5] ?? 0) >>> (eos & 31)) & 1, 0);
    assert.equal(value(await matcher.accept(bytes('1'))), true);
    assert.deepEqual(value(await matcher.status()), { mayEnd: true, mustEnd: false });
  });

  /** One token for each byte. */
  function bytes(text: string): Uint32Array {
    return Uint32Array.from([...Buffer.from(text)], (byte) => {
      assert.ok(tokenOfByte.has(byte));
      return tokenOfByte.get(byte) ?? 0;
    });
  }
});
